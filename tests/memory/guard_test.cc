// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "ait/memory/buffer.h"
#include "ait/memory/heap.h"
#include "ait/memory/tracking.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::Process;
using ::ait::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::byte* Take(GuardResource& memory, std::size_t bytes, std::size_t alignment = 128) {
  return static_cast<std::byte*>(memory.Allocate(bytes, alignment).value());
}

/// Writes a byte where nobody should; not known to the compiler, which would refuse.
void Poke(std::byte* at) {
  std::byte* volatile hidden = at;
  *hidden = std::byte{1};
}

TEST(GuardResource, CleanUseHasNoErrors) {
  const auto memory = GuardResource::Create();
  for (const std::size_t bytes : {1, 127, 128, 4096, 5000, 1 << 20}) {
    for (const std::size_t alignment : {128, 4096, 1 << 21}) {
      std::byte* const block = Take(*memory, bytes, alignment);
      EXPECT_TRUE(
          std::all_of(block, block + bytes, [](std::byte b) { return b == std::byte{0xcd}; }));
      std::memset(block, 1, bytes);
      EXPECT_OK(memory->Check());
      memory->Deallocate(block, bytes, alignment);
    }
  }
  EXPECT_THAT(memory->errors(), IsEmpty());
}

TEST(GuardResource, ABlockEndsAtTheEndOfAPage) {
  const auto memory = GuardResource::Create();
  std::byte* const block = Take(*memory, 256);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block + 256) % 4096, 0u);
  memory->Deallocate(block, 256);
  const auto at_begin = GuardResource::Create({.edge = GuardedEdge::kBegin});
  std::byte* const other = Take(*at_begin, 256);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(other) % 4096, 0u);
  at_begin->Deallocate(other, 256);
}

TEST(GuardResource, AccessOutsideOfABlockOrAfterItsReleaseEndsTheProcess) {
  for (const char* access :
       {"behind", "before", "after-free", "read-after-free", "after-eviction"}) {
    Process peer = Process::Spawn({.program = AIT_TEST_MEMORY_PEER, .args = {"guard", access}});
    peer.ExpectExit(128 + SIGSEGV, StrCat("about to: ", access));
  }
  Process peer = Process::Spawn({.program = AIT_TEST_MEMORY_PEER, .args = {"guard", "inside"}});
  peer.ExpectExit(0, "about to: inside");
}

TEST(GuardResource, ADoubleFreeIsAnErrorThatNamesTheBlock) {
  std::vector<Status> seen;
  const auto memory =
      GuardResource::Create({.on_error = [&](const Status& error) { seen.push_back(error); }});
  std::byte* block = nullptr;
  {
    const MemoryLabel label("loader");
    block = Take(*memory, 100);
  }
  memory->Deallocate(block, 100);
  EXPECT_THAT(seen, IsEmpty());
  memory->Deallocate(block, 100);
  ASSERT_EQ(seen.size(), 1u);
  EXPECT_THAT(seen[0], StatusIs(StatusCode::kFailedPrecondition,
                                AllOf(HasSubstr("double free: a block of 100 bytes at 0x"),
                                      HasSubstr("(labelled \"loader\") was given back before"))));
  EXPECT_EQ(memory->errors(), seen);
}

TEST(GuardResource, AForeignPointerIsAnErrorAndIsNotTouched) {
  const auto heap = HeapResource::Create();
  const auto memory = GuardResource::Create();
  void* const foreign = heap->Allocate(100).value();
  memory->Deallocate(foreign, 100);
  ASSERT_EQ(memory->error_count(), 1);
  EXPECT_THAT(memory->errors()[0],
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("foreign pointer: 0x")));
  std::memset(foreign, 1, 100);
  heap->Deallocate(foreign, 100);
}

TEST(GuardResource, APointerIntoABlockIsAnErrorAndFreesNothing) {
  const auto memory = GuardResource::Create();
  std::byte* const block = Take(*memory, 1000);
  memory->Deallocate(block + 64, 936);
  ASSERT_EQ(memory->error_count(), 1);
  EXPECT_THAT(memory->errors()[0],
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("which is 64 bytes inside a block of 1000 bytes")));
  std::memset(block, 1, 1000);
  memory->Deallocate(block, 1000);
  EXPECT_EQ(memory->error_count(), 1);
}

TEST(GuardResource, AWrongSizeOrAlignmentIsAnErrorAndFreesTheBlock) {
  const auto memory = GuardResource::Create();
  memory->Deallocate(Take(*memory, 1000), 999);
  memory->Deallocate(Take(*memory, 1000, 4096), 1000, 256);
  EXPECT_THAT(memory->errors(),
              ElementsAre(StatusIs(StatusCode::kInvalidArgument,
                                   HasSubstr("aligned to 128, was given back as 999 bytes")),
                          StatusIs(StatusCode::kInvalidArgument,
                                   HasSubstr("aligned to 4096, was given back as 1000 bytes "
                                             "aligned to 256"))));
}

TEST(GuardResource, AWriteBesideABlockIsFoundWhenItIsFreedAndByCheck) {
  const auto memory = GuardResource::Create();
  std::byte* const block = Take(*memory, 100);
  EXPECT_OK(memory->Check());
  Poke(block + 100);
  EXPECT_THAT(memory->Check(), StatusIs(StatusCode::kDataLoss,
                                        HasSubstr("0 bytes behind the end of a block of 100")));
  EXPECT_EQ(memory->error_count(), 0);
  memory->Deallocate(block, 100);
  EXPECT_OK(memory->Check()) << "freed blocks are not looked at";

  std::byte* const other = Take(*memory, 100);
  Poke(other - 3);
  memory->Deallocate(other, 100);
  EXPECT_THAT(memory->errors(),
              ElementsAre(StatusIs(StatusCode::kDataLoss, HasSubstr("behind the end")),
                          StatusIs(StatusCode::kDataLoss,
                                   HasSubstr("3 bytes before the beginning of a block of 100"))));
}

TEST(GuardResource, ALeakIsAnErrorWhenTheResourceGoesAway) {
  std::vector<Status> seen;
  {
    const auto memory =
        GuardResource::Create({.on_error = [&](const Status& error) { seen.push_back(error); }});
    static_cast<void>(Take(*memory, 77));
  }
  EXPECT_THAT(seen, ElementsAre(StatusIs(StatusCode::kFailedPrecondition,
                                         HasSubstr("leak: a block of 77 bytes"))));
}

TEST(GuardResource, QuarantineIsBoundedAndTakesNoMemory) {
  struct Use {
    std::int64_t addresses = 0;
    std::int64_t resident = 0;
  };
  const auto use = [] {
    std::ifstream statm("/proc/self/statm");
    Use pages;
    statm >> pages.addresses >> pages.resident;
    return Use{pages.addresses * 4096, pages.resident * 4096};
  };
  constexpr std::size_t kBytes = 8 << 20;
  const auto memory = GuardResource::Create({.quarantine = MiB(100)});
  const Use before = use();
  for (int i = 0; i < 30; ++i) memory->Deallocate(Take(*memory, kBytes), kBytes);  // 240 MiB
  const Use after = use();
  EXPECT_LE(after.resident - before.resident, MiB(32).value());
  EXPECT_LE(after.addresses - before.addresses, MiB(120).value());
  EXPECT_GE(after.addresses - before.addresses, MiB(80).value());
}

TEST(GuardResource, KeepsTheFirstErrorsAndCountsAll) {
  const auto memory = GuardResource::Create();
  std::byte byte{};
  for (int i = 0; i < 150; ++i) memory->Deallocate(&byte, 1);
  EXPECT_EQ(memory->errors().size(), 100u);
  EXPECT_EQ(memory->error_count(), 150);
}

TEST(GuardResource, AnErrorMayBeAnsweredByUsingTheResource) {
  std::shared_ptr<GuardResource> memory;
  int calls = 0;
  memory = GuardResource::Create({.on_error = [&](const Status&) {
    ++calls;
    EXPECT_OK(HostBuffer::Create(memory, 10));
  }});
  std::byte byte{};
  std::jthread([&] { memory->Deallocate(&byte, 1); }).join();
  EXPECT_EQ(calls, 1);
}

}  // namespace
}  // namespace ait

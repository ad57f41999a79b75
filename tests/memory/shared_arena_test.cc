// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/shared_arena.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::ait::testing::TempDir;
using ::testing::HasSubstr;

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

std::ptrdiff_t OpenFiles() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

/// A memory file with the bytes of `fd`, sealed or not.
int CopyOf(int fd, int seals) {
  struct stat file = {};
  fstat(fd, &file);
  std::vector<char> bytes(static_cast<std::size_t>(file.st_size));
  EXPECT_EQ(pread(fd, bytes.data(), bytes.size(), 0), file.st_size);
  const int copy = memfd_create("copy", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_EQ(pwrite(copy, bytes.data(), bytes.size(), 0), file.st_size);
  if (seals != 0) {
    EXPECT_EQ(fcntl(copy, F_ADD_SEALS, seals), 0);
  }
  return copy;
}

TEST(SharedArena, IsSeenByAViewAndWrittenByBoth) {
  ASSERT_OK_AND_ASSIGN(const auto arena, SharedArena::Create({.capacity = MiB(1)}));
  ASSERT_OK_AND_ASSIGN(void* const block, arena->Allocate(1000));
  std::memset(block, 3, 1000);
  ASSERT_OK_AND_ASSIGN(const Bytes offset, arena->OffsetOf(block, 1000));
  ASSERT_OK_AND_ASSIGN(const SharedArenaView view, SharedArenaView::Attach(arena->fd()));
  EXPECT_EQ(view.capacity(), arena->capacity());
  ASSERT_OK_AND_ASSIGN(void* const seen, view.At(offset, 1000));
  EXPECT_NE(seen, block) << "another mapping";
  EXPECT_EQ(std::memcmp(seen, block, 1000), 0);
  std::memset(seen, 4, 1000);
  EXPECT_EQ(static_cast<char*>(block)[999], 4);
  EXPECT_EQ(view.OffsetOf(seen, 1000).value(), offset);
  EXPECT_EQ(arena->At(offset, 1000).value(), block);
  arena->Deallocate(block, 1000);
}

TEST(SharedArena, CountsWhatIsUsedInMultiplesOfTheAlignment) {
  ASSERT_OK_AND_ASSIGN(const auto arena, SharedArena::Create({.capacity = Bytes(5000)}));
  EXPECT_EQ(arena->capacity(), Bytes(8192));
  ASSERT_OK_AND_ASSIGN(void* const first, arena->Allocate(1));
  ASSERT_OK_AND_ASSIGN(void* const second, arena->Allocate(129));
  EXPECT_EQ(arena->used(), Bytes(128 + 256));
  arena->Deallocate(first, 1);
  arena->Deallocate(second, 129);
  EXPECT_EQ(arena->used(), Bytes(0));
  ASSERT_OK_AND_ASSIGN(void* const all, arena->Allocate(8192));
  EXPECT_THAT(arena->Allocate(1),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("0 are free, the largest gap")));
  arena->Deallocate(all, 8192);
}

TEST(SharedArena, LeavesAloneWhatIsNotItsOwnOrFreeAlready) {
  ASSERT_OK_AND_ASSIGN(const auto arena, SharedArena::Create({.capacity = MiB(1)}));
  ASSERT_OK_AND_ASSIGN(void* const block, arena->Allocate(256));
  int foreign = 0;
  arena->Deallocate(&foreign, sizeof(foreign));
  EXPECT_EQ(arena->used(), Bytes(256));
  arena->Deallocate(block, 256);
  arena->Deallocate(block, 256);
  EXPECT_EQ(arena->used(), Bytes(0));
}

TEST(SharedArena, RefusesOffsetsAndBlocksOutsideOfIt) {
  ASSERT_OK_AND_ASSIGN(const auto arena, SharedArena::Create({.capacity = Bytes(4096)}));
  EXPECT_OK(arena->At(Bytes(4096), 0));
  EXPECT_OK(arena->At(Bytes(0), 4096));
  EXPECT_THAT(arena->At(Bytes(1), 4096), StatusIs(StatusCode::kOutOfRange, HasSubstr("4096")));
  EXPECT_THAT(arena->At(Bytes(-1), 1), StatusIs(StatusCode::kOutOfRange));
  EXPECT_THAT(arena->At(Bytes(5000), 0), StatusIs(StatusCode::kOutOfRange));
  EXPECT_THAT(arena->At(Bytes(8), SIZE_MAX), StatusIs(StatusCode::kOutOfRange));
  char local = 0;
  EXPECT_THAT(arena->OffsetOf(&local, 1), StatusIs(StatusCode::kOutOfRange));
  ASSERT_OK_AND_ASSIGN(void* const last, arena->At(Bytes(4095), 1));
  EXPECT_THAT(arena->OffsetOf(last, 2), StatusIs(StatusCode::kOutOfRange));
}

TEST(SharedArena, HasAllItsMemoryFromTheStartAndNobodyCanTakeItAway) {
  ASSERT_OK_AND_ASSIGN(const auto arena, SharedArena::Create({.capacity = MiB(4)}));
  struct stat file = {};
  ASSERT_EQ(fstat(arena->fd(), &file), 0);
  EXPECT_GE(file.st_blocks * 512, MiB(4).value()) << "reserved, not sparse";
  EXPECT_EQ(file.st_nlink, 0u) << "it has no name";
  EXPECT_EQ(fcntl(arena->fd(), F_GET_SEALS) & kSeals, kSeals);
  EXPECT_NE(ftruncate(arena->fd(), 0), 0);
  EXPECT_NE(ftruncate(arena->fd(), MiB(64).value()), 0);
  EXPECT_EQ(fcntl(arena->fd(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

TEST(SharedArena, ShowsItsNameInMaps) {
  ASSERT_OK_AND_ASSIGN(const auto arena,
                       SharedArena::Create({.capacity = MiB(1), .name = "ait-test-name"}));
  std::ifstream maps("/proc/self/maps");
  const std::string text{std::istreambuf_iterator<char>(maps), {}};
  EXPECT_THAT(text, HasSubstr("memfd:ait-test-name"));
}

TEST(SharedArena, RefusesCapacitiesAndNamesThatAreNone) {
  for (const Bytes capacity : {Bytes(0), Bytes(-1), Bytes(INT64_MAX)}) {
    EXPECT_THAT(SharedArena::Create({.capacity = capacity}),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr(StrCat(capacity))));
  }
  EXPECT_THAT(SharedArena::Create({.capacity = MiB(1), .name = std::string(241, 'x')}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("241")));
}

TEST(SharedArena, MoreThanTheMemoryThatIsLeftIsAnErrorThatNamesTheLimit) {
  TempDir folder;
  std::filesystem::create_directories(folder / "proc/self");
  std::filesystem::create_directories(folder / "sys/fs/cgroup/job");
  std::ofstream(folder / "proc/self/status") << "Cpus_allowed_list:\t0\n";
  std::ofstream(folder / "proc/self/cgroup") << "0::/job\n";
  std::ofstream(folder / "proc/self/mountinfo")
      << "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
  std::ofstream(folder / "sys/fs/cgroup/job/memory.max") << MiB(10).value() << "\n";
  std::ofstream(folder / "sys/fs/cgroup/job/memory.current") << MiB(4).value() << "\n";
  const SystemRoots roots = {.proc = folder / "proc", .sys = folder / "sys"};
  EXPECT_OK(SharedArena::Create({.capacity = MiB(5), .roots = roots}));
  const auto before = OpenFiles();
  EXPECT_THAT(
      SharedArena::Create({.capacity = MiB(6), .roots = roots}),
      StatusIs(StatusCode::kResourceExhausted,
               AllOf(HasSubstr("6291456 bytes are available"), HasSubstr("job/memory.max"))));
  EXPECT_EQ(OpenFiles(), before);
}

TEST(SharedArena, LeavesNoDescriptorBehind) {
  const auto before = OpenFiles();
  for (int round = 0; round < 10; ++round) {
    ASSERT_OK_AND_ASSIGN(const auto arena, SharedArena::Create({.capacity = MiB(1)}));
    ASSERT_OK_AND_ASSIGN(SharedArenaView view, SharedArenaView::Attach(arena->fd()));
    const SharedArenaView moved = std::move(view);
    EXPECT_EQ(OpenFiles(), before + 1) << "the view keeps none";
  }
  EXPECT_EQ(OpenFiles(), before);
}

TEST(SharedArenaView, OutlivesTheArena) {
  ASSERT_OK_AND_ASSIGN(auto arena, SharedArena::Create({.capacity = MiB(1)}));
  std::memset(arena->Allocate(64).value(), 9, 64);
  ASSERT_OK_AND_ASSIGN(SharedArenaView view, SharedArenaView::Attach(arena->fd()));
  arena.reset();
  SharedArenaView& itself = view;
  view = std::move(itself);
  EXPECT_EQ(static_cast<char*>(view.At(Bytes(0), 64).value())[63], 9);
}

/// Bytes of shared memory that the kernel counts for this process.
std::int64_t ResidentShared() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("RssShmem:")) return std::stoll(line.substr(9)) * 1024;
  }
  return -1;
}

TEST(SharedArenaView, ForgottenPagesAreNoLongerResidentAndKeepWhatTheyHold) {
  constexpr std::size_t kBytes = 16 << 20;
  ASSERT_OK_AND_ASSIGN(const auto arena, SharedArena::Create({.capacity = Bytes(kBytes)}));
  ASSERT_OK_AND_ASSIGN(void* const block, arena->Allocate(kBytes));
  std::memset(block, 5, kBytes);
  ASSERT_OK_AND_ASSIGN(const SharedArenaView view, SharedArenaView::Attach(arena->fd()));
  ASSERT_OK_AND_ASSIGN(void* const seen, view.At(Bytes(0), kBytes));
  const std::int64_t before = ResidentShared();
  std::memset(seen, 6, kBytes);
  const std::int64_t touched = ResidentShared();
  EXPECT_GE(touched - before, std::int64_t{15} << 20) << "counted once for each mapping";
  view.Forget();
  EXPECT_LE(ResidentShared() - before, std::int64_t{1} << 20);
  EXPECT_EQ(static_cast<char*>(block)[kBytes - 1], 6);
  EXPECT_EQ(static_cast<char*>(seen)[12345], 6) << "and it can be touched again";
}

TEST(SharedArenaView, RefusesForeignDescriptors) {
  const auto before = OpenFiles();
  EXPECT_THAT(SharedArenaView::Attach(-1),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("descriptor -1: it is not a shared "
                                                               "arena but closed")));
  const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  EXPECT_THAT(SharedArenaView::Attach(null),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("another kind of file")));
  close(null);
  const int empty = memfd_create("empty", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_THAT(SharedArenaView::Attach(empty),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("but not a shared arena")));
  ASSERT_EQ(ftruncate(empty, 8192), 0);
  EXPECT_THAT(SharedArenaView::Attach(empty),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("8192 bytes")));
  close(empty);
  EXPECT_EQ(OpenFiles(), before);
}

TEST(SharedArenaView, RefusesAnArenaThatIsDamagedUnsealedOrOfAnotherVersion) {
  ASSERT_OK_AND_ASSIGN(const auto arena, SharedArena::Create({.capacity = Bytes(4096)}));
  const int unsealed = CopyOf(arena->fd(), 0);
  EXPECT_THAT(SharedArenaView::Attach(unsealed),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("not sealed")));
  const std::uint64_t version = 99;
  ASSERT_EQ(pwrite(unsealed, &version, sizeof(version), 4096 + 8), 8);
  EXPECT_THAT(SharedArenaView::Attach(unsealed),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("version 99")));
  ASSERT_EQ(ftruncate(unsealed, 5000), 0);
  EXPECT_THAT(SharedArenaView::Attach(unsealed), StatusIs(StatusCode::kInvalidArgument));
  close(unsealed);

  const int good = CopyOf(arena->fd(), kSeals);
  EXPECT_OK(SharedArenaView::Attach(good)) << "what it is lies in the file, not in who made it";
  close(good);
}

}  // namespace
}  // namespace ait

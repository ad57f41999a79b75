// SPDX-License-Identifier: Apache-2.0
// What is special about shared memory; the contract is in shm_contract_test.cc and, on processes, in
// tests/multiprocess.
#include "ait/comm/shared_memory.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include "ait/comm/communicator.h"
#include "ait/comm/store.h"
#include "ait/memory/buffer.h"
#include "comm/shm_layout.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

using Group = std::shared_ptr<Communicator>;

/// Joins `size` ranks, each on a thread with mappings of its own, as processes have.
std::vector<StatusOr<Group>> Join(int size, const std::vector<SharedMemoryOptions>& options,
                                  const std::shared_ptr<Store>& store = MakeProcessStore(),
                                  std::chrono::milliseconds timeout = std::chrono::seconds(20)) {
  std::vector<StatusOr<Group>> ranks(static_cast<std::size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      const auto at = static_cast<std::size_t>(rank);
      auto transport =
          JoinSharedMemory(*store, "test", Rank(rank), WorldSize(size), Deadline::After(timeout),
                           options[std::min(at, options.size() - 1)]);
      if (transport.ok()) {
        ranks[at] = std::make_shared<Communicator>(*std::move(transport));
      } else {
        ranks[at] = transport.status();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return ranks;
}

template <typename Body>
void OnRanks(std::vector<StatusOr<Group>>& ranks, Body body) {
  std::vector<std::thread> threads;
  for (StatusOr<Group>& rank : ranks) {
    ASSERT_THAT(rank, IsOk());
    threads.emplace_back([&] { body(**rank); });
  }
  for (std::thread& thread : threads) thread.join();
}

std::ptrdiff_t OpenFiles() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

int Mappings() {
  std::ifstream maps("/proc/self/maps");
  int lines = 0;
  for (std::string line; std::getline(maps, line);) ++lines;
  return lines;
}

TEST(SharedMemory, ReducesInPlaceWhatLiesInTheArena) {
  auto ranks = Join(3, {{}});
  OnRanks(ranks, [](Communicator& rank) {
    EXPECT_EQ(rank.transport_name(), "shared-memory");
    ASSERT_TRUE(rank.memory());
    EXPECT_EQ(rank.memory().properties().sharing, Sharing::kProcesses);
    constexpr std::int64_t kCount = 100'003;
    auto buffer = HostBuffer::Create(rank.memory(), kCount * sizeof(float));
    ASSERT_THAT(buffer, IsOk());
    auto* const values = reinterpret_cast<float*>(buffer->data());
    for (int round = 0; round < 20; ++round) {
      for (std::int64_t i = 0; i < kCount; ++i) {
        values[i] = static_cast<float>(i % 100 + rank.rank().value() + round);
      }
      EXPECT_OK(rank.AllReduce({values, kCount, DType::kFloat32}, ReduceOp::kSum).Wait());
      for (std::int64_t i = 0; i < kCount; ++i) {
        ASSERT_EQ(values[i], static_cast<float>(3 * (i % 100 + round) + 3)) << i;
      }
    }
  });
}

TEST(SharedMemory, ArenaAndOtherMemoryMayMeetInOneOperation) {
  auto ranks = Join(4, {{.staging = KiB(64)}});
  OnRanks(ranks, [](Communicator& rank) {
    constexpr std::size_t kCount = 50'000;
    const int r = rank.rank().value();
    auto arena = HostBuffer::Create(rank.memory(), kCount * sizeof(std::int64_t));
    ASSERT_THAT(arena, IsOk());
    std::vector<std::int64_t> heap(kCount);
    auto* const values = r % 2 == 0 ? reinterpret_cast<std::int64_t*>(arena->data()) : heap.data();
    const Buffer buffer{values, kCount, DType::kInt64};
    for (std::size_t i = 0; i < kCount; ++i) values[i] = static_cast<std::int64_t>(i) * (r + 1);
    EXPECT_OK(rank.AllReduce(buffer, ReduceOp::kSum).Wait());
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(values[i], static_cast<std::int64_t>(i) * 10) << i;
    }
    const Buffer part = buffer.Slice(r * 12'500, 12'500);
    EXPECT_OK(rank.ReduceScatter(buffer, part, ReduceOp::kMax).Wait());
    EXPECT_OK(rank.AllGather(part, buffer).Wait());
    for (std::size_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(values[i], static_cast<std::int64_t>(i) * 10) << i;
    }
  });
}

TEST(SharedMemory, BlocksOutliveTheCommunicator) {
  auto ranks = Join(2, {{}});
  std::vector<HostBuffer> kept;
  for (auto& rank : ranks) {
    ASSERT_THAT(rank, IsOk());
    auto buffer = HostBuffer::Create((*rank)->memory(), 1 << 20);
    ASSERT_THAT(buffer, IsOk());
    kept.push_back(*std::move(buffer));
    rank = nullptr;
  }
  for (HostBuffer& buffer : kept) std::memset(buffer.data(), 1, 1 << 20);
}

TEST(SharedMemory, OptionsThatCannotWorkAreRefused) {
  EXPECT_THAT(Join(1, {{.staging = KiB(63)}})[0],
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("64512 bytes; it is a multiple")));
  EXPECT_THAT(Join(1, {{.staging = MiB(65)}})[0], StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(Join(1, {{.arena_capacity = Bytes(-1)}})[0],
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("-1 bytes; it is at least 0")));
  const auto ranks = Join(2, {{.staging = KiB(64)}, {.staging = KiB(128)}}, MakeProcessStore(),
                          std::chrono::milliseconds(500));
  EXPECT_THAT(ranks[0],
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("65536 on rank 0"), HasSubstr("131072 on rank 1"))));
}

TEST(SharedMemory, RanksOnOtherHostsAreNamed) {
  const auto store = MakeProcessStore();
  ASSERT_OK(store->Set("test/host/1", "boot 1, net:[7]"));
  auto transport = JoinSharedMemory(*store, "test", Rank(0), WorldSize(2),
                                    Deadline::After(std::chrono::seconds(5)));
  EXPECT_THAT(transport, StatusIs(StatusCode::kFailedPrecondition,
                                  AllOf(HasSubstr("rank 1 cannot reach the host of rank 0"),
                                        HasSubstr("boot 1, net:[7]"))));
}

TEST(SharedMemory, RankThatDoesNotComeIsNamed) {
  const auto store = MakeProcessStore();
  ASSERT_OK(store->Set("test/host/1", *HostIdentity()));
  auto transport = JoinSharedMemory(*store, "test", Rank(0), WorldSize(2),
                                    Deadline::After(std::chrono::milliseconds(200)));
  EXPECT_THAT(transport, StatusIs(StatusCode::kDeadlineExceeded,
                                  HasSubstr("rank 1 did not come to share memory")));
}

TEST(SharedMemory, HostIdentityIsThatOfTheKernelAndTheNetwork) {
  const auto own = HostIdentity();
  ASSERT_THAT(own, IsOk());
  EXPECT_THAT(*own, AllOf(HasSubstr("boot "), HasSubstr("net:[")));
  EXPECT_EQ(*own, *HostIdentity());
}

TEST(SharedMemory, MoreThanTheArenaHoldsIsAnError) {
  auto ranks = Join(1, {{.arena_capacity = MiB(8)}});
  ASSERT_THAT(ranks[0], IsOk());
  EXPECT_THAT(HostBuffer::Create((*ranks[0])->memory(), 16 << 20).status(),
              StatusIs(StatusCode::kResourceExhausted));
}

TEST(SharedMemory, ForkedChildIsRefused) {
  auto ranks = Join(2, {{}});
  ASSERT_THAT(ranks[0], IsOk());
  const pid_t child = fork();
  if (child == 0) {
    std::int64_t x = 1;
    const Status status = (*ranks[0])->AllReduce(View(std::span(&x, 1)), ReduceOp::kSum).Wait();
    const bool split = (*ranks[0])->Split(0, 0).status().code() == StatusCode::kFailedPrecondition;
    (*ranks[0])->Abort(AbortedError("a child"));
    (*ranks[0])->Note(1, "data");
    ranks.clear();  // the parent's group is not left
    _exit(status.code() == StatusCode::kFailedPrecondition &&
                  std::string(status.message()).find("forked") != std::string::npos && split
              ? 0
              : 1);
  }
  int code = 0;
  ASSERT_EQ(waitpid(child, &code, 0), child);
  EXPECT_EQ(code, 0);
  OnRanks(ranks, [](Communicator& rank) {
    std::int64_t x = 1;
    EXPECT_OK(rank.AllReduce(View(std::span(&x, 1)), ReduceOp::kSum).Wait());
    EXPECT_EQ(x, 2);
  });
}

TEST(SharedMemory, TenThousandGroupsLeaveNothingBehind) {
  auto ranks = Join(2, {{.arena_capacity = MiB(64)}});
  const auto make_groups = [&](int count) {
    OnRanks(ranks, [&](Communicator& rank) {
      for (int i = 0; i < count; ++i) {
        auto group = rank.Split(0, rank.rank().value());
        ASSERT_THAT(group, IsOk()) << i;
        std::int64_t x = i;
        ASSERT_OK((*group)->AllReduce(View(std::span(&x, 1)), ReduceOp::kSum).Wait()) << i;
        ASSERT_EQ(x, 2 * i);
      }
    });
  };
  make_groups(10);
  const auto files = OpenFiles();
  const int mappings = Mappings();
  make_groups(10'000);  // 64 MiB of arena would not hold the staging memory of 60 at once
  EXPECT_EQ(OpenFiles(), files);
  EXPECT_LE(Mappings(), mappings + 10);  // stacks and heaps of threads
}

TEST(SharedMemory, WholeRunsLeaveNothingBehind) {
  Join(2, {{}});
  const auto files = OpenFiles();
  const int mappings = Mappings();
  for (int i = 0; i < 50; ++i) Join(3, {{}});
  EXPECT_EQ(OpenFiles(), files);
  EXPECT_LE(Mappings(), mappings + 10);
}

TEST(SharedMemory, SurvivorsGoOn) {
  auto ranks = Join(4, {{}});
  ASSERT_THAT(ranks[2], IsOk());
  ranks[2] = nullptr;  // leaves
  std::vector<std::thread> threads;
  for (const int r : {0, 1, 3}) {
    threads.emplace_back([&, r] {
      Communicator& rank = **ranks[static_cast<std::size_t>(r)];
      std::int64_t x = 1;
      EXPECT_THAT(rank.AllReduce(View(std::span(&x, 1)), ReduceOp::kSum).Wait(),
                  StatusIs(StatusCode::kUnavailable, HasSubstr("rank 2")));
      auto rest = rank.Survivors();
      ASSERT_THAT(rest, IsOk());
      EXPECT_EQ((*rest)->size(), WorldSize(3));
      EXPECT_EQ((*rest)->rank(), Rank(r == 3 ? 2 : r));
      x = 1 << r;
      EXPECT_OK((*rest)->AllReduce(View(std::span(&x, 1)), ReduceOp::kSum).Wait());
      EXPECT_EQ(x, 1 + 2 + 8);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(SharedMemory, CallbackOfAWaitingThreadMayDropTheCommunicator) {
  for (int round = 0; round < 50; ++round) {
    auto ranks = Join(2, {{.arena_capacity = MiB(64)}});
    std::vector<std::thread> threads;
    for (auto& joined : ranks) {
      ASSERT_THAT(joined, IsOk());
      threads.emplace_back([&joined, round] {
        auto rank = std::make_shared<Group>(*std::move(joined));
        joined = nullptr;
        std::vector<float> x(600'000, 1.0f);  // too large to end within the call
        const Work work = (*rank)->AllReduce(View(x), ReduceOp::kSum);
        work.Then([rank](const Status&) { rank->reset(); });
        if (round % 2 == 0) {
          EXPECT_OK(work.Wait());
        }
        while (!work.done()) std::this_thread::yield();
        EXPECT_EQ(x[0], 2.0f);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(SharedMemory, RankWithoutMemoryForAGroupTellsTheOthers) {
  auto ranks = Join(2, {{}, {.arena_capacity = MiB(5)}});  // its first staging memory fills that
  OnRanks(ranks, [](Communicator& rank) {
    const auto child = rank.Split(0, -rank.rank().value(), {.timeout = std::chrono::seconds(60)});
    EXPECT_THAT(child, StatusIs(rank.rank() == Rank(1) ? StatusCode::kResourceExhausted
                                                       : StatusCode::kUnavailable));
    const auto other = rank.Split(0, rank.rank().value(), {.timeout = std::chrono::seconds(60)});
    EXPECT_THAT(other, StatusIs(rank.rank() == Rank(1) ? StatusCode::kResourceExhausted
                                                       : StatusCode::kUnavailable));
  });
}

TEST(SharedMemory, AnyNumberOfRanksHasAlignedRings) {
  for (int size = 1; size <= 300; ++size) {
    const internal::ShmMemberLayout layout(size, 64 << 10);
    EXPECT_GE(layout.quarter, static_cast<std::size_t>(size) * 4096) << size;
    for (const int peer : {0, size / 2, size - 1}) {
      EXPECT_EQ(layout.answers(peer) % 128, 0u) << size;
      EXPECT_EQ(layout.messages(peer) % 128, 0u) << size;
    }
  }
}

TEST(SharedMemory, MissingRankIsToldWithWhatItDoes) {
  auto ranks = Join(2, {{}});
  OnRanks(ranks, [](Communicator& rank) {
    std::int64_t x = 1;
    EXPECT_OK(rank.AllReduce(View(std::span(&x, 1)), ReduceOp::kSum, {.label = "bucket 3"}).Wait());
    if (rank.rank() == Rank(1)) {
      rank.Note(812, "data");
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      return;
    }
    EXPECT_THAT(rank.Barrier({.timeout = std::chrono::milliseconds(150)}).Wait(),
                StatusIs(StatusCode::kDeadlineExceeded,
                         AllOf(HasSubstr("rank 1 did not come"), HasSubstr("bucket 3"),
                               HasSubstr("step 812, data"), HasSubstr("s ago"))));
  });
}

}  // namespace
}  // namespace ait

// SPDX-License-Identifier: Apache-2.0
// What is special about several hosts: order of sums, precision on the wire, what is refused. The
// contract is in hierarchical_contract_test.cc.
#include "ait/comm/hierarchical.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <random>

#include "ait/base/float16.h"
#include "comm/hierarchical_support.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::OnHosts;
using testing::StatusIs;
using testing::ThreadHosts;
using Group = std::shared_ptr<Communicator>;

const std::vector<int> kTwoByTwo = {0, 0, 1, 1};
const std::vector<int> kUneven = {0, 1, 1, 0, 1};  // 2 and 3 ranks, dealt out

/// Numbers of very different size: every order of adding gives other bits.
float Wild(int rank, std::int64_t i) {
  auto x = static_cast<std::uint64_t>(1000 * i + rank + 1) * 0x9e3779b97f4a7c15u;
  x ^= x >> 29;
  return std::ldexp(static_cast<float>(x % 2001) - 1000.0f, static_cast<int>(x / 2001 % 24) - 12);
}

template <typename T>
std::vector<T> Values(int rank, std::int64_t count) {
  std::vector<T> values;
  for (std::int64_t i = 0; i < count; ++i) values.push_back(static_cast<T>(Wild(rank, i)));
  return values;
}

/// The sum of element i, host by host, with the partial sums put through `wire`.
template <typename T, typename Wire>
float SumOf(const std::vector<int>& hosts, std::int64_t i, Wire wire) {
  std::vector<float> sums;
  std::vector<int> names;
  for (std::size_t rank = 0; rank < hosts.size(); ++rank) {
    const float value = static_cast<float>(static_cast<T>(Wild(static_cast<int>(rank), i)));
    const auto found = std::find(names.begin(), names.end(), hosts[rank]);
    if (found == names.end()) {
      names.push_back(hosts[rank]);
      sums.push_back(value);
    } else {
      sums[static_cast<std::size_t>(found - names.begin())] += value;
    }
  }
  float sum = wire(sums[0]);
  for (std::size_t host = 1; host < sums.size(); ++host) sum += wire(sums[host]);
  return wire(sum);
}

void ExpectAllOk(const std::vector<Status>& statuses) {
  for (const Status& status : statuses) EXPECT_OK(status);
}

/// All-reduces and reduce-scatters of `count` elements; the result is `expected(i)` in bits.
template <typename T>
void ExpectSums(const std::vector<int>& hosts, const HierarchicalTuning& tuning, ReduceOp op,
                std::int64_t count, const std::function<T(std::int64_t)>& expected) {
  ExpectAllOk(OnHosts(hosts, tuning, {}, [&](const Group& group) -> Status {
    const int rank = group->rank().value(), size = group->size().value();
    std::vector<T> x = Values<T>(rank, count);
    AIT_RETURN_IF_ERROR(group->AllReduce(View(x), op).Wait());
    std::vector<std::int64_t> counts(static_cast<std::size_t>(size), count / size);
    counts[0] += count % size;
    const std::int64_t begin = rank == 0 ? 0 : counts[0] + (rank - 1) * counts[1];
    const std::vector<T> whole = Values<T>(rank, count);
    std::vector<T> part(static_cast<std::size_t>(counts[static_cast<std::size_t>(rank)]));
    AIT_RETURN_IF_ERROR(group->ReduceScatter(View(whole), View(part), counts, op).Wait());
    for (std::int64_t i = 0; i < count; ++i) {
      const T want = expected(i);
      const auto at = static_cast<std::size_t>(i);
      if (std::memcmp(&x[at], &want, sizeof(T)) != 0) {
        return InternalError("element ", i, " of the all-reduce is ", static_cast<float>(x[at]),
                             ", not ", static_cast<float>(want));
      }
      if (i < begin || i >= begin + std::ssize(part)) continue;
      if (std::memcmp(&part[at - static_cast<std::size_t>(begin)], &want, sizeof(T)) != 0) {
        return InternalError("element ", i, " of the reduce-scatter is not that of the all-reduce");
      }
    }
    return OkStatus();
  }));
}

constexpr auto kExact = [](float x) { return x; };
constexpr auto kRounded = [](float x) { return static_cast<float>(static_cast<BFloat16>(x)); };

TEST(Hierarchical, SumsHostByHostForAnySizeAndChunk) {
  for (const auto& hosts : {kTwoByTwo, kUneven}) {
    for (const std::int64_t count : {1, 100, 20'000, 70'001}) {
      for (const Bytes chunk : {KiB(64), KiB(192), MiB(4)}) {
        ExpectSums<float>(hosts, {.chunk = chunk}, ReduceOp::kSum, count,
                          [&](std::int64_t i) { return SumOf<float>(hosts, i, kExact); });
      }
    }
  }
}

TEST(Hierarchical, AnAverageDividesOnceByTheWorldSize) {
  ExpectSums<float>(kUneven, {.chunk = KiB(64)}, ReduceOp::kAverage, 30'000,
                    [&](std::int64_t i) { return SumOf<float>(kUneven, i, kExact) / 5.0f; });
}

TEST(Hierarchical, HalfFloatsAreRoundedOnceAfterAllHosts) {
  ExpectSums<BFloat16>(kUneven, {.chunk = KiB(64)}, ReduceOp::kSum, 50'000, [&](std::int64_t i) {
    return static_cast<BFloat16>(SumOf<BFloat16>(kUneven, i, kExact));
  });
  ExpectSums<BFloat16>(kTwoByTwo, {.chunk = KiB(64)}, ReduceOp::kAverage, 5'000,
                       [&](std::int64_t i) {
                         return static_cast<BFloat16>(SumOf<BFloat16>(kTwoByTwo, i, kExact) / 4.0f);
                       });
}

TEST(Hierarchical, Bf16OnTheWireRoundsEachHostsSumAndTheResult) {
  const HierarchicalTuning tuning{.wire = WirePrecision::kBf16, .chunk = KiB(64)};
  for (const auto& hosts : {kTwoByTwo, kUneven}) {
    ExpectSums<float>(hosts, tuning, ReduceOp::kSum, 50'001,
                      [&](std::int64_t i) { return SumOf<float>(hosts, i, kRounded); });
    ExpectSums<BFloat16>(hosts, tuning, ReduceOp::kSum, 5'000, [&](std::int64_t i) {
      return static_cast<BFloat16>(SumOf<BFloat16>(hosts, i, kRounded));
    });
  }
  ExpectSums<float>(kTwoByTwo, tuning, ReduceOp::kAverage, 5'000,
                    [&](std::int64_t i) { return SumOf<float>(kTwoByTwo, i, kRounded) / 4.0f; });
}

TEST(Hierarchical, Bf16OnTheWireLeavesAllElseExact) {
  const HierarchicalTuning tuning{.wire = WirePrecision::kBf16};
  ExpectAllOk(OnHosts(kTwoByTwo, tuning, {}, [&](const Group& group) -> Status {
    std::vector<double> sums(1000, 1.0 + 1e-12);
    AIT_RETURN_IF_ERROR(group->AllReduce(View(sums), ReduceOp::kSum).Wait());
    EXPECT_EQ(sums, std::vector<double>(1000, 4 * (1.0 + 1e-12)));
    std::vector<float> most(1000, 1.0f + 1e-6f * static_cast<float>(group->rank().value()));
    AIT_RETURN_IF_ERROR(group->AllReduce(View(most), ReduceOp::kMax).Wait());
    EXPECT_EQ(most, std::vector<float>(1000, 1.0f + 1e-6f * 3));
    std::vector<float> all(4), one = {1.0f + 1e-6f};
    AIT_RETURN_IF_ERROR(group->AllGather(View(one), View(all)).Wait());
    EXPECT_EQ(all, std::vector<float>(4, 1.0f + 1e-6f));
    return OkStatus();
  }));
}

TEST(Hierarchical, RandomOperationsInFlightAtOnce) {
  ExpectAllOk(OnHosts(kUneven, {.chunk = KiB(64)}, {}, [](const Group& group) -> Status {
    std::mt19937 common(5);  // the same choices on all ranks
    const int rank = group->rank().value(), size = group->size().value();
    std::vector<Work> works;
    std::vector<std::pair<std::vector<std::int64_t>, std::int64_t>> expected;
    expected.reserve(200);
    for (int i = 0; i < 200; ++i) {
      const std::size_t count = common() % 20'000;
      const int root = static_cast<int>(common() % 5);
      auto& [x, value] = expected.emplace_back(std::vector<std::int64_t>(count, rank + i), 0);
      if (common() % 2 == 0) {
        works.push_back(group->Broadcast(View(x), Rank(root)));
        value = root + i;
      } else {
        works.push_back(group->AllReduce(View(x), ReduceOp::kSum));
        value = size * i + size * (size - 1) / 2;
      }
    }
    AIT_RETURN_IF_ERROR(WaitAll(works));
    for (const auto& [x, value] : expected) {
      EXPECT_EQ(x, std::vector<std::int64_t>(x.size(), value));
    }
    return OkStatus();
  }));
}

TEST(Hierarchical, ACancelMayComeWhileTheGroupCloses) {
  for (int round = 0; round < 20; ++round) {
    OnHosts(kTwoByTwo, {}, {}, [&](Group all) {
      if (all->rank() != Rank(0)) return OkStatus();  // leaves: the others may find that out first
      const Work barrier = all->Barrier();
      std::thread canceller([&] { barrier.Cancel(); });
      all.reset();
      canceller.join();
      EXPECT_FALSE(barrier.Wait().ok());
      return OkStatus();
    });
  }
}

TEST(Hierarchical, PartsThatDoNotFitAreRefused) {
  const Deadline deadline = Deadline::After(std::chrono::seconds(10));
  auto parts = ThreadHosts(kTwoByTwo);
  parts[0].inside = nullptr;
  EXPECT_THAT(JoinHosts(std::move(parts[0]), deadline).status(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("number 0 of 2 ranks of its host")));
  parts[1].host_of_rank.pop_back();
  EXPECT_THAT(JoinHosts(std::move(parts[1]), deadline).status(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("name the host of each")));
  EXPECT_THAT(JoinHosts(std::move(parts[2]), deadline, {.chunk = Bytes(7)}).status(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("64 KiB to 1 GiB")));
  parts[3].store = nullptr;
  EXPECT_THAT(JoinHosts(std::move(parts[3]), deadline).status(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("store")));
}

}  // namespace
}  // namespace ait

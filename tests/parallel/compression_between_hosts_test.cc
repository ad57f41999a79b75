// SPDX-License-Identifier: Apache-2.0
// Compression between hosts, which here are groups of threads.
#include <cmath>
#include <mutex>

#include "parallel/compressed_ranks.h"

namespace ait {
namespace {

using ::ait::testing::CompressedRank;
using ::ait::testing::ExactSums;
using ::ait::testing::Gradients;
using ::ait::testing::MakeCompression;
using ::ait::testing::RandomGradients;
using ::ait::testing::SomeParameters;
using ::ait::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Gradients OfRank(int rank, int step) {
  return RandomGradients(SomeParameters(), 100 * step + rank);
}

// `hosts` hosts of `local` ranks, numbered host by host.
void RunHosts(int hosts, int local, const MakeCompression& make,
              const std::function<void(CompressedRank&, Communicator& across)>& main) {
  auto group = MakeThreadGroup(WorldSize(hosts * local), {.timeout = std::chrono::seconds(30)});
  std::vector<std::thread> threads;
  for (auto& all : group) {
    threads.emplace_back([&, all] {
      const int rank = all->rank().value();
      auto host = all->Split(rank / local, rank);
      auto across = all->Split(rank % local, rank);
      ASSERT_OK(host);
      ASSERT_OK(across);
      CompressedRank player(
          all, CompressionBetweenHosts({.compression = make(), .host = *host, .across = *across}),
          SomeParameters());
      main(player, **across);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

std::map<std::string, MakeCompression> Methods() {
  return {{"bf16", [] { return Bf16Compression(); }},
          {"int8", [] { return Int8Compression(); }},
          {"topk", [] { return TopKCompression({.ratio = 0.1}); }},
          {"powersgd", [] { return PowerSgdCompression({.rank = 2, .start_step = 1}); }}};
}

TEST(CompressionBetweenHosts, GivesAllRanksTheSameBitsAndKeepsWhatItDidNotSend) {
  constexpr int kSteps = 4;
  for (const auto& [name, make] : Methods()) {
    if (name == "bf16") continue;
    for (const auto& [hosts, local] : {std::pair(2, 2), std::pair(3, 1), std::pair(2, 3)}) {
      std::mutex mutex;
      std::vector<Gradients> last(static_cast<std::size_t>(hosts * local));
      std::map<std::string, std::vector<double>> balance;  // given - got - residuals
      const auto add = [&](const std::string& parameter, const std::vector<float>& values,
                           double sign) {
        auto& sum = balance[parameter];
        sum.resize(values.size());
        for (std::size_t i = 0; i < values.size(); ++i) sum[i] += sign * double{values[i]};
      };
      RunHosts(hosts, local, make, [&](CompressedRank& rank, Communicator&) {
        for (int step = 0; step < kSteps; ++step) {
          const Gradients given = OfRank(rank.rank(), step);
          auto sums = rank.Step(given);
          ASSERT_OK(sums);
          std::lock_guard lock(mutex);
          for (const auto& [parameter, values] : given) add(parameter, values, 1);
          if (rank.rank() == 0) {
            for (const auto& [parameter, values] : *sums) add(parameter, values, -1);
          }
          last[static_cast<std::size_t>(rank.rank())] = *sums;
        }
        std::lock_guard lock(mutex);
        for (const CompressionEntry& entry : rank.compression().Save().entries) {
          if (entry.kind == "residual") add(entry.parameter, entry.values, -1);
        }
      });
      for (const Gradients& other : last) EXPECT_EQ(other, last[0]) << name;
      for (const auto& [parameter, values] : balance) {
        for (const double value : values) ASSERT_NEAR(value, 0, 2e-4) << name << " " << parameter;
      }
    }
  }
}

TEST(CompressionBetweenHosts, SendsABucketOnceAHost) {
  std::mutex mutex;
  std::int64_t sent = 0;
  std::int64_t exact = 0;
  RunHosts(2, 3, Methods().at("bf16"), [&](CompressedRank& rank, Communicator&) {
    ASSERT_OK(rank.Step(OfRank(rank.rank(), 0)));
    std::int64_t bytes = 0;
    for (const FlatBucket& bucket : rank.layout().buckets()) bytes += 4 * bucket.count;
    std::lock_guard lock(mutex);
    sent += rank.counters.sent_bytes;
    exact = 2 * bytes;  // of two hosts
  });
  EXPECT_EQ(2 * sent, exact);
}

TEST(CompressionBetweenHosts, GoesOnFromItsState) {
  for (const auto& [name, make] : Methods()) {
    std::vector<CompressionState> saved(4);
    std::vector<Gradients> expected(4);
    RunHosts(2, 2, make, [&](CompressedRank& rank, Communicator&) {
      const auto self = static_cast<std::size_t>(rank.rank());
      for (int step = 0; step < 3; ++step) ASSERT_OK(rank.Step(OfRank(rank.rank(), step)));
      saved[self] = rank.compression().Save();
      expected[self] = rank.Step(OfRank(rank.rank(), 3)).value();
    });
    RunHosts(2, 2, make, [&](CompressedRank& rank, Communicator&) {
      const auto self = static_cast<std::size_t>(rank.rank());
      auto lost = rank.compression().Load(saved);  // of all: it finds its own
      ASSERT_OK(lost);
      EXPECT_THAT(*lost, IsEmpty());
      EXPECT_EQ(rank.Step(OfRank(rank.rank(), 3)).value(), expected[self]) << name;
    });
    RunHosts(2, 1, make, [&](CompressedRank& rank, Communicator&) {
      auto lost = rank.compression().Load(saved);
      ASSERT_OK(lost);
      EXPECT_THAT(*lost, HasSubstr("begin at zero: the state is of between-hosts:0/2:"));
      EXPECT_EQ(rank.compression().Save().step, 3);
      ASSERT_OK(rank.Step(OfRank(rank.rank(), 3)));
    });
  }
}

TEST(CompressionBetweenHosts, FailsOnAllRanksTogether) {
  RunHosts(2, 2, Methods().at("int8"), [&](CompressedRank& rank, Communicator& across) {
    if (rank.rank() == 3) across.Abort(AbortedError("the cable is cut"));
    const auto sums = rank.Step(OfRank(rank.rank(), 0));
    ASSERT_FALSE(sums.ok());
    rank.communicator().Abort(sums.status());  // as the engine does
    EXPECT_THAT(Message(sums.status()), HasSubstr("aborted"));
  });
}

TEST(CompressionBetweenHosts, RefusesGroupsThatDoNotFit) {
  auto group = MakeThreadGroup(WorldSize(1));
  const auto layout = FlatLayout::Create(SomeParameters(), {.world_size = WorldSize(2)});
  const auto uneven = CompressionBetweenHosts(
      {.compression = Bf16Compression(), .host = group[0], .across = group[0]});
  EXPECT_THAT(uneven->Bind(*layout, Rank(0), WorldSize(2)),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("makes 1 ranks"), HasSubstr("same number"))));
  EXPECT_THAT(CompressionBetweenHosts({.compression = Bf16Compression(), .host = group[0]})
                  ->Bind(*layout, Rank(0), WorldSize(1)),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("across hosts is null")));
}

}  // namespace
}  // namespace ait

// SPDX-License-Identifier: Apache-2.0
#include "ait/data/plan/plan_agreement.h"

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ait/comm/thread_group.h"
#include "data/plan/plan_test_support.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::RandomPlans;
using ::ait::testing::Source;
using ::ait::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// What every rank of a world gets.
std::vector<Status> OnRanks(int ranks, const std::function<Status(Communicator&, Shard)>& check) {
  const auto group = MakeThreadGroup(WorldSize(ranks), {.timeout = std::chrono::seconds(60)});
  std::vector<Status> results(static_cast<std::size_t>(ranks));
  std::vector<std::jthread> threads;
  for (int r = 0; r < ranks; ++r) {
    threads.emplace_back([&, r] {
      const auto i = static_cast<std::size_t>(r);
      results[i] = check(*group[i], {.rank = Rank(r), .size = WorldSize(ranks)});
    });
  }
  threads.clear();
  for (const Status& result : results) EXPECT_EQ(result, results[0]);
  return results;
}

DataPlan Make(DataPlanOptions options, std::vector<PlanSource> sources = {Source("a", 100)}) {
  StatusOr<DataPlan> plan = DataPlan::Create(std::move(sources), std::move(options));
  EXPECT_OK(plan.status());
  return *std::move(plan);
}

const DataPlanOptions kOptions = {.global_batch_size = 16, .seed = 42};

TEST(AgreeOnPlan, IsOkWhereAllRanksReadTheirPartOfOnePlan) {
  RandomPlans random(5);
  for (int round = 0; round < 8; ++round) {
    const std::vector<PlanSource> sources = random.Sources(100);
    const DataPlan plan = Make(random.Options(), sources);
    const auto results = OnRanks(1 + round % 5, [&](Communicator& communicator, Shard shard) {
      return AgreeOnPlan(communicator, plan, shard);
    });
    EXPECT_OK(results[0]);
  }
}

// Row 2 of the public bug reports: the seed of the order depends on the rank.
TEST(AgreeOnPlan, NamesTheRanksWithAnotherSeed) {
  const auto results = OnRanks(4, [](Communicator& communicator, Shard shard) {
    DataPlanOptions options = kOptions;
    options.seed = shard.rank.value() == 3 ? 45 : 42;
    return AgreeOnPlan(communicator, Make(options), shard);
  });
  EXPECT_THAT(results[0], StatusIs(StatusCode::kInvalidArgument,
                                   HasSubstr("rank 0 has seed: 42, rank 3 has seed: 45")));
}

// Row 1: shards dealt by a hash that differs between the processes.
TEST(AgreeOnPlan, NamesTheRanksWithOtherData) {
  const auto results = OnRanks(3, [](Communicator& communicator, Shard shard) {
    const int rank = shard.rank.value();
    return AgreeOnPlan(communicator, Make(kOptions, {Source("a", 100), Source("b", 50 + rank % 2)}),
                       shard);
  });
  EXPECT_THAT(results[0], StatusIs(StatusCode::kInvalidArgument,
                                   AllOf(HasSubstr("source 1: 50 samples"),
                                         HasSubstr("rank 1 has source 1: 51 samples"),
                                         HasSubstr("(b)"), Not(HasSubstr("\t")))));
}

TEST(AgreeOnPlan, IsOkWhereEqualDataLieAtOtherPaths) {
  const auto results = OnRanks(2, [](Communicator& communicator, Shard shard) {
    PlanSource source = Source("data", 100);
    source.name = StrCat("/host", shard.rank, "/data");
    return AgreeOnPlan(communicator, Make(kOptions, {source}), shard);
  });
  EXPECT_OK(results[0]);
}

// Row 3: every rank draws the same.
TEST(AgreeOnPlan, NamesThePartsThatOverlap) {
  auto results = OnRanks(4, [](Communicator& communicator, Shard shard) {
    if (shard.rank.value() == 2) shard.rank = Rank(0);
    return AgreeOnPlan(communicator, Make(kOptions), shard);
  });
  EXPECT_THAT(results[0],
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("ranks 0, 2 read part 0 of 4, and nobody reads part 2;")));
  results = OnRanks(4, [](Communicator& communicator, Shard) {
    return AgreeOnPlan(communicator, Make(kOptions), Shard{});
  });
  EXPECT_THAT(results[0],
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("cut into 1 parts for 4 ranks")));
}

TEST(AgreeOnPlan, NamesTheRanksWithAnotherBatchOrState) {
  auto results = OnRanks(3, [](Communicator& communicator, Shard shard) {
    DataPlanOptions options = kOptions;
    if (shard.rank.value() == 0) options.global_batch_size = 18;
    return AgreeOnPlan(communicator, Make(options), shard);
  });
  EXPECT_THAT(results[0], StatusIs(StatusCode::kInvalidArgument,
                                   HasSubstr("rank 0 has global batch size: 18, ranks 1, 2 have")));
  results = OnRanks(2, [](Communicator& communicator, Shard shard) {
    const DataPlan plan = Make(kOptions);
    return AgreeOnPlan(communicator, plan, shard, {plan.digest(), 0, 16 * shard.rank.value()});
  });
  EXPECT_THAT(results[0], StatusIs(StatusCode::kInvalidArgument, HasSubstr("\"delivered\":16")));
}

TEST(AgreeOnPlan, SharesTheErrorOfOneRank) {
  const auto results = OnRanks(3, [](Communicator& communicator, Shard shard) {
    const DataPlan plan = Make(kOptions);
    return AgreeOnPlan(communicator, plan, shard,
                       {plan.digest() + (shard.rank.value() == 1 ? 1 : 0), 0, 0});
  });
  EXPECT_THAT(results[0], StatusIs(StatusCode::kFailedPrecondition,
                                   AllOf(HasSubstr("rank 1: "), HasSubstr("another plan"))));
}

// A plan of the program, with its mistakes.
class Careless final : public BatchPlan {
 public:
  enum class Mistake { kNone, kSeedOfRank, kOverlap, kGap, kUneven, kState };
  explicit Careless(Mistake mistake, int own_rank = 0) : mistake_(mistake), own_rank_(own_rank) {}

  std::uint64_t digest() const override { return 1; }
  std::int64_t epoch_size(std::int64_t) const override { return 64; }
  Status NextBatch(const DatasetState& from, const Shard& shard,
                   PlannedBatch& batch) const override {
    batch = {.after = from};
    batch.is_end = from.delivered == 64;
    if (batch.is_end) return OkStatus();
    const std::int64_t rank = shard.rank.value();
    const std::int64_t size = shard.size.value();
    batch.global_samples = 4 * size;
    batch.after.delivered += 4 * size;
    std::int64_t begin = 4 * rank;
    std::int64_t end = begin + 4;
    if (mistake_ == Mistake::kOverlap && rank == 1) begin -= 1, end -= 1;
    if (mistake_ == Mistake::kGap && rank == 1) end -= 1;
    if (mistake_ == Mistake::kUneven) {
      begin -= rank > 0 ? 2 : 0;
      if (rank == 0) end -= 2;
      if (rank > 0 && rank < size - 1) end -= 2;
    }
    if (mistake_ == Mistake::kState && rank == 1) batch.after.delivered -= 1;
    for (std::int64_t i = begin; i < end; ++i) {
      const std::int64_t position = from.delivered + i;
      const bool other = mistake_ == Mistake::kSeedOfRank && own_rank_ == 2;
      batch.samples.push_back({.id = other ? 63 - position : position, .position = position});
    }
    return OkStatus();
  }

 private:
  const Mistake mistake_;
  const int own_rank_;
};

TEST(AgreeOnPlan, FindsOutThatAPlanDependsOnTheRank) {
  using Mistake = Careless::Mistake;
  const auto agree = [](Mistake mistake) {
    return OnRanks(4, [&](Communicator& communicator, Shard shard) {
      return AgreeOnPlan(communicator, Careless(mistake, shard.rank.value()), shard);
    })[0];
  };
  EXPECT_OK(agree(Mistake::kNone));
  EXPECT_THAT(agree(Mistake::kSeedOfRank),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("ranks 0, 1, 3: of the batch"),
                             HasSubstr("rank 2 has other samples than by the plan here"))));
  EXPECT_THAT(agree(Mistake::kOverlap), StatusIs(StatusCode::kInternal, HasSubstr("position 3")));
}

TEST(VerifyPlan, FindsTheMistakesOfAPlan) {
  using Mistake = Careless::Mistake;
  const auto verify = [](Mistake mistake) {
    return VerifyPlan(Careless(mistake), WorldSize(4), {.plan_digest = 1}, 100);
  };
  EXPECT_OK(verify(Mistake::kNone));
  EXPECT_OK(verify(Mistake::kSeedOfRank));  // one plan cannot tell
  EXPECT_THAT(verify(Mistake::kOverlap),
              StatusIs(StatusCode::kInternal,
                       HasSubstr("rank 1 gets position 3 of epoch 0 where position 4 of epoch 0")));
  EXPECT_THAT(verify(Mistake::kGap), StatusIs(StatusCode::kInternal, HasSubstr("rank 2 gets")));
  EXPECT_THAT(verify(Mistake::kUneven), StatusIs(StatusCode::kInternal, HasSubstr("rows")));
  EXPECT_THAT(verify(Mistake::kState), StatusIs(StatusCode::kInternal, HasSubstr("rank 1 is at")));
}

TEST(VerifyPlan, IsOkForPlansOfAllKinds) {
  RandomPlans random(6);
  for (int round = 0; round < 200; ++round) {
    const std::vector<PlanSource> sources = random.Sources(80);
    DataPlanOptions options = random.Options();
    options.last_batch = std::vector{LastBatch::kShort, LastBatch::kPad,
                                     LastBatch::kDrop}[static_cast<std::size_t>(round % 3)];
    if (options.last_batch == LastBatch::kDrop) options.epoch_border = EpochBorder::kRunOn;
    if (round % 2 == 0) options.stages = {random.Mixture(sources.size())};
    const DataPlan plan = Make(options, sources);
    EXPECT_OK(VerifyPlan(plan, WorldSize(1 + static_cast<int>(random.Below(8))), plan.start(),
                         1'000'000));
  }
}

}  // namespace
}  // namespace ait

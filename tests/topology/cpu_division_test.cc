// SPDX-License-Identifier: Apache-2.0
#include "ait/topology/cpu_division.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "support/status_matchers.h"
#include "topology/machines.h"

namespace ait {
namespace {

using ::ait::testing::MakeBudget;
using ::ait::testing::MakeMachine;
using ::ait::testing::StatusIs;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> Lists(const CpuDivision& division) {
  std::vector<std::string> lists;
  for (const RankCpus& rank : division.ranks) lists.push_back(rank.cpus.ToString());
  return lists;
}

CpuDivision Divide(const Machine& machine, const CpuSet& cpus, int ranks) {
  StatusOr<CpuDivision> division = DivideCpus(machine, MakeBudget(cpus), ranks);
  EXPECT_OK(division);
  return division.ok() ? *division : CpuDivision();
}

TEST(CpuDivision, OneRankGetsAllAndOneThreadPerCore) {
  const Machine machine = MakeMachine(1, 1, 4, 2);
  const CpuDivision division = Divide(machine, machine.online, 1);
  EXPECT_THAT(Lists(division), ElementsAre("0-7"));
  EXPECT_EQ(division.ranks[0].threads, 4);
  EXPECT_EQ(division.ranks[0].nodes, NodeSet{0});
  EXPECT_EQ(division.sharing, CpuSharing::kNothing);
}

TEST(CpuDivision, TwoRanksOnTwoCpus) {
  const Machine machine = MakeMachine(1, 1, 2, 1);
  const CpuDivision division = Divide(machine, machine.online, 2);
  EXPECT_THAT(Lists(division), ElementsAre("0", "1"));
  EXPECT_EQ(division.ranks[1].threads, 1);
}

TEST(CpuDivision, RanksGetNodesThenCachesThenCores) {
  const Machine machine = MakeMachine(2, 2, 4, 2);  // 16 cores
  EXPECT_THAT(Lists(Divide(machine, machine.online, 2)), ElementsAre("0-7,16-23", "8-15,24-31"));
  const CpuDivision four = Divide(machine, machine.online, 4);
  EXPECT_THAT(Lists(four), ElementsAre("0-3,16-19", "4-7,20-23", "8-11,24-27", "12-15,28-31"));
  EXPECT_EQ(four.ranks[2].threads, 4);
  EXPECT_EQ(four.ranks[2].nodes, NodeSet{1});
  const CpuDivision sixteen = Divide(machine, machine.online, 16);
  EXPECT_EQ(sixteen.ranks[5].cpus.ToString(), "5,21") << "a core keeps its threads together";
  EXPECT_EQ(sixteen.sharing, CpuSharing::kNothing);
}

TEST(CpuDivision, KeepsCachesWholeWhereItCostsNoCore) {
  // 3 caches of 4 cores, 8 ranks: one core each at least; no rank has to straddle.
  const Machine machine = MakeMachine(1, 3, 4, 1);
  for (const RankCpus& rank : Divide(machine, machine.online, 8).ranks) {
    EXPECT_EQ(machine.FindCpu(rank.cpus.front())->cache_group,
              machine.FindCpu(rank.cpus[rank.cpus.size() - 1])->cache_group);
  }
}

TEST(CpuDivision, StraddlesRatherThanMakeOneRankSlow) {
  // 4 cores on node 0 and 2 on node 1: 3 cores each, since all ranks wait for the slowest.
  const Machine machine = MakeMachine(2, 1, 4, 1);
  const CpuDivision division = Divide(machine, {0, 1, 2, 3, 4, 5}, 2);
  EXPECT_THAT(Lists(division), ElementsAre("0-2", "3-5"));
  EXPECT_EQ(division.ranks[0].threads, 3);
  EXPECT_EQ(division.ranks[1].nodes, (NodeSet{0, 1}));
}

TEST(CpuDivision, UsesOnlyWhatTheBudgetAllowsAndTheMachineHas) {
  const Machine machine = MakeMachine(1, 1, 8, 1);
  Budget budget = MakeBudget({1, 3, 5, 7, 99});
  budget.cpuset = Sourced<CpuSet>{{3, 5, 7}, "test"};
  ASSERT_OK_AND_ASSIGN(const CpuDivision division, DivideCpus(machine, budget, 3));
  EXPECT_THAT(Lists(division), ElementsAre("3", "5", "7"));
}

TEST(CpuDivision, TheQuotaLimitsThreadsNotPlaces) {
  const Machine machine = MakeMachine(1, 1, 8, 1);
  Budget budget = MakeBudget(machine.online);
  budget.cpu_quota = Sourced<double>{4.5, "test"};
  ASSERT_OK_AND_ASSIGN(CpuDivision division, DivideCpus(machine, budget, 2));
  EXPECT_EQ(division.ranks[0].threads, 2) << "5 for two ranks";
  EXPECT_EQ(division.ranks[0].cpus.size(), 4);
  budget.cpu_quota->value = 0.5;
  ASSERT_OK_AND_ASSIGN(division, DivideCpus(machine, budget, 2));
  EXPECT_EQ(division.ranks[0].threads, 1);
}

TEST(CpuDivision, MoreRanksThanCoresShareCores) {
  const Machine machine = MakeMachine(1, 1, 2, 2);
  const CpuDivision division = Divide(machine, machine.online, 4);
  EXPECT_THAT(Lists(division), ElementsAre("0", "2", "1", "3"));
  EXPECT_EQ(division.sharing, CpuSharing::kCores);
  EXPECT_EQ(Name(division.sharing), "cores");
  const CpuDivision three = Divide(machine, machine.online, 3);
  EXPECT_EQ(three.sharing, CpuSharing::kCores);
  EXPECT_THAT(Lists(three), ElementsAre("0", "2", "1,3")) << "who gets two threads gets a core";
  EXPECT_EQ(three.ranks[0].threads, 1);
}

TEST(CpuDivision, MoreRanksThanCpusShareThemAll) {
  const Machine machine = MakeMachine(1, 1, 2, 1);
  const CpuDivision division = Divide(machine, machine.online, 5);
  EXPECT_THAT(Lists(division), Each("0-1"));
  EXPECT_EQ(division.ranks.size(), 5u);
  EXPECT_EQ(division.ranks[4].threads, 1);
  EXPECT_EQ(division.sharing, CpuSharing::kCpus);
}

TEST(CpuDivision, RefusesWhatCannotBeDivided) {
  const Machine machine = MakeMachine(1, 1, 2, 1);
  EXPECT_THAT(DivideCpus(machine, MakeBudget(machine.online), 0),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("at least 1")));
  EXPECT_THAT(DivideCpus(machine, MakeBudget({7}), 1),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("usable are 7")));
}

TEST(CpuDivision, EveryDivisionIsFairAndWhole) {
  for (int nodes : {1, 2, 3, 8}) {
    for (int caches : {1, 2, 3}) {
      for (int threads_per_core : {1, 2}) {
        const Machine machine = MakeMachine(nodes, caches, 3, threads_per_core);
        for (const CpuSet& holes : {CpuSet(), CpuSet{0}, CpuSet{1, 4, 5, 7}}) {
          const CpuSet usable = machine.online - holes;
          for (int ranks = 1; ranks <= usable.size(); ++ranks) {
            const CpuDivision division = Divide(machine, usable, ranks);
            ASSERT_EQ(division.ranks.size(), static_cast<std::size_t>(ranks));
            CpuSet all;
            int count = 0;
            for (const RankCpus& rank : division.ranks) {
              all = all | rank.cpus;
              count += rank.cpus.size();
              EXPECT_GE(rank.threads, 1);
              EXPECT_LE(rank.threads, rank.cpus.size());
              EXPECT_EQ(rank.threads, division.ranks[0].threads);
            }
            EXPECT_EQ(all, usable) << "a CPU is idle";
            EXPECT_EQ(count, usable.size()) << "a CPU is shared";
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace ait

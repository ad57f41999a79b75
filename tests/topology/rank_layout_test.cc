// SPDX-License-Identifier: Apache-2.0
#include "ait/topology/rank_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "ait/base/env.h"
#include "ait/topology/binding.h"
#include "ait/topology/memory_policy.h"
#include "support/status_matchers.h"
#include "topology/machines.h"

namespace ait {
namespace {

using ::ait::testing::MakeBudget;
using ::ait::testing::MakeMachine;
using ::ait::testing::StatusIs;
using ::testing::Contains;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

HostLayout LayOut(const Machine& machine, const RankLayoutOptions& options) {
  StatusOr<HostLayout> host = LayOutRanks(machine, MakeBudget(machine.online), options);
  EXPECT_OK(host);
  return host.ok() ? *host : HostLayout();
}

std::vector<std::string> Lists(const HostLayout& host, CpuSet RankLayout::* set) {
  std::vector<std::string> lists;
  for (const RankLayout& rank : host.ranks) lists.push_back((rank.*set).ToString());
  return lists;
}

std::vector<std::string> Cpus(const HostLayout& host) { return Lists(host, &RankLayout::cpus); }

TEST(RankLayout, CompactIsTheDivisionOfTheCpus) {
  for (const auto& [nodes, caches, cores, threads] :
       {std::tuple(1, 1, 2, 1), std::tuple(2, 2, 4, 2), std::tuple(8, 1, 8, 2)}) {
    const Machine machine = MakeMachine(nodes, caches, cores, threads);
    for (int ranks = 1; ranks <= machine.online.size() + 1; ++ranks) {
      const HostLayout host = LayOut(machine, {.ranks = ranks});
      ASSERT_OK_AND_ASSIGN(const CpuDivision division,
                           DivideCpus(machine, MakeBudget(machine.online), ranks));
      ASSERT_EQ(host.ranks.size(), division.ranks.size());
      EXPECT_EQ(host.sharing, division.sharing);
      for (std::size_t i = 0; i < host.ranks.size(); ++i) {
        EXPECT_EQ(host.ranks[i].cpus, division.ranks[i].cpus);
        EXPECT_EQ(host.ranks[i].threads, division.ranks[i].threads) << ranks;
        EXPECT_EQ(host.ranks[i].nodes, division.ranks[i].nodes);
      }
    }
  }
}

TEST(RankLayout, ScatterDealsNodesThenCaches) {
  const Machine machine = MakeMachine(2, 2, 4, 1);
  EXPECT_THAT(Cpus(LayOut(machine, {.ranks = 4})), ElementsAre("0-3", "4-7", "8-11", "12-15"));
  EXPECT_THAT(Cpus(LayOut(machine, {.ranks = 4, .policy = LayoutPolicy::kScatter})),
              ElementsAre("0-3", "8-11", "4-7", "12-15"));
  EXPECT_THAT(Cpus(LayOut(machine, {.ranks = 8, .policy = LayoutPolicy::kScatter})),
              ElementsAre("0-1", "8-9", "4-5", "12-13", "2-3", "10-11", "6-7", "14-15"));
}

TEST(RankLayout, ThreadsOfACoreComputeCommunicateAndLoad) {
  const Machine machine = MakeMachine(1, 2, 4, 2);  // core i: CPUs i and i + 8
  const HostLayout host = LayOut(machine, {.ranks = 2});
  EXPECT_THAT(Cpus(host), ElementsAre("0-3,8-11", "4-7,12-15"));
  EXPECT_THAT(Lists(host, &RankLayout::compute), ElementsAre("0-3", "4-7"));
  EXPECT_THAT(Lists(host, &RankLayout::communication), ElementsAre("11", "15"));
  EXPECT_THAT(Lists(host, &RankLayout::loaders), ElementsAre("8-10", "12-14"));
  EXPECT_EQ(host.ranks[0].threads, 4);
  EXPECT_EQ(host.ranks[0].loader_threads, 3) << "8 CPUs: 4 compute, 1 communicates";
  EXPECT_THAT(host.notes, IsEmpty());
}

TEST(RankLayout, OneThreadACoreLeavesServiceToTheScheduler) {
  const HostLayout host = LayOut(MakeMachine(1, 2, 4, 1), {.ranks = 2});
  EXPECT_EQ(host.ranks[1].compute.ToString(), "4-7");
  EXPECT_EQ(host.ranks[1].communication, host.ranks[1].cpus);
  EXPECT_EQ(host.ranks[1].loaders, host.ranks[1].cpus);
  EXPECT_EQ(host.ranks[1].loader_threads, 1);
}

TEST(RankLayout, ServiceCoresDoNotCompute) {
  HostLayout host = LayOut(MakeMachine(1, 2, 4, 1), {.ranks = 2, .service_cores = 1});
  EXPECT_THAT(Lists(host, &RankLayout::compute), ElementsAre("0-2", "4-6"));
  EXPECT_THAT(Lists(host, &RankLayout::communication), ElementsAre("3", "7"));
  EXPECT_THAT(Lists(host, &RankLayout::loaders), ElementsAre("3", "7"));
  EXPECT_EQ(host.ranks[0].threads, 3);
  host = LayOut(MakeMachine(1, 2, 4, 1), {.ranks = 2, .service_cores = 2});
  EXPECT_THAT(Lists(host, &RankLayout::communication), ElementsAre("3", "7"));
  EXPECT_THAT(Lists(host, &RankLayout::loaders), ElementsAre("2", "6"));
  host = LayOut(MakeMachine(1, 2, 4, 2), {.ranks = 2, .service_cores = 1});
  EXPECT_THAT(Lists(host, &RankLayout::compute), ElementsAre("0-2", "4-6"));
  EXPECT_THAT(Lists(host, &RankLayout::communication), ElementsAre("3", "7"));
  EXPECT_THAT(Lists(host, &RankLayout::loaders), ElementsAre("8-11", "12-15"));
}

TEST(RankLayout, RanksOfFewCoresGetCachesOfTheirOwn) {
  const Machine machine = MakeMachine(2, 2, 4, 1);
  EXPECT_THAT(Cpus(LayOut(machine, {.ranks = 2, .cores = 2})), ElementsAre("0-1", "4-5"))
      << "one node, but two caches";
  EXPECT_THAT(Cpus(LayOut(machine, {.ranks = 2, .policy = LayoutPolicy::kScatter, .cores = 2})),
              ElementsAre("0-1", "8-9"));
  EXPECT_THAT(Cpus(LayOut(machine, {.ranks = 3, .cores = 4})), ElementsAre("0-3", "4-7", "8-11"));
  EXPECT_THAT(Cpus(LayOut(machine, {.ranks = 2, .cores = 6})), ElementsAre("0-5", "8-13"))
      << "whole caches first, and no rank on two nodes";
  const HostLayout shared = LayOut(machine, {.ranks = 6, .cores = 2});
  EXPECT_THAT(shared.notes, Contains(HasSubstr("ranks share last-level caches: ")));
}

TEST(RankLayout, CompactUsesTheFewestNodesThatHoldTheRanks) {
  // Five ranks do not find five caches; the first node holds four of them, the second the fifth.
  const HostLayout host = LayOut(MakeMachine(4, 1, 4, 1), {.ranks = 5, .cores = 1});
  NodeSet nodes;
  for (const RankLayout& rank : host.ranks) nodes = nodes | rank.nodes;
  EXPECT_EQ(nodes.ToString(), "0-1");
}

TEST(RankLayout, EachRankOnTheNodeOfItsGpu) {
  const Machine machine = MakeMachine(2, 2, 4, 1);
  const HostLayout host = LayOut(
      machine, {.ranks = 4, .policy = LayoutPolicy::kGpu, .gpu_nodes = {{1}, {0}, {1}, {0}}});
  EXPECT_THAT(Cpus(host), ElementsAre("8-11", "0-3", "12-15", "4-7"));
  EXPECT_EQ(host.ranks[2].gpu, 2);
  EXPECT_EQ(host.ranks[2].memory_node, 1);
  EXPECT_THAT(host.notes, IsEmpty());
  const HostLayout wrapped =
      LayOut(machine, {.ranks = 4, .policy = LayoutPolicy::kGpu, .gpu_nodes = {{1}, {0}}});
  EXPECT_THAT(Cpus(wrapped), ElementsAre("8-11", "0-3", "12-15", "4-7"));
  EXPECT_EQ(wrapped.ranks[2].gpu, 0);
}

TEST(RankLayout, UnevenGpusGiveEqualThreadsAndANote) {
  const Machine machine = MakeMachine(2, 1, 8, 1);
  const HostLayout host =
      LayOut(machine, {.ranks = 3, .policy = LayoutPolicy::kGpu, .gpu_nodes = {{0}, {0}, {1}}});
  EXPECT_THAT(Cpus(host), ElementsAre("0-3", "4-7", "8-15"));
  for (const RankLayout& rank : host.ranks) EXPECT_EQ(rank.threads, 4);
  const HostLayout one =
      LayOut(machine, {.ranks = 2, .policy = LayoutPolicy::kGpu, .gpu_nodes = {{0}, {0}}});
  EXPECT_THAT(Cpus(one), ElementsAre("0-3", "4-7"));
  EXPECT_THAT(one.notes, Contains(HasSubstr("no rank's GPU is on node 1: its CPUs 8-15")));
}

TEST(RankLayout, RanksThatShareCpusLeaveTheOthersTheirLayout) {
  Machine machine = MakeMachine(2, 1, 4, 2);  // CPUs 0-3,8-11 and 4-7,12-15
  const Budget budget = {.affinity = {CpuSet::Parse("0,4-7,12-15").value(), "the test"}};
  ASSERT_OK_AND_ASSIGN(
      const HostLayout host,
      LayOutRanks(machine, budget,
                  {.ranks = 4, .policy = LayoutPolicy::kGpu, .gpu_nodes = {{0}, {0}, {1}, {0}}}));
  EXPECT_THAT(Cpus(host), ElementsAre("0", "0", "4-7,12-15", "0"));
  EXPECT_EQ(host.sharing, CpuSharing::kCpus);
  for (const std::size_t rank : {0, 1, 3}) {
    EXPECT_EQ(host.ranks[rank].compute, CpuSet({0}));
    EXPECT_EQ(host.ranks[rank].loaders, CpuSet({0}));
  }
  EXPECT_EQ(host.ranks[2].compute.ToString(), "4-7");
  EXPECT_EQ(host.ranks[2].communication.ToString(), "15");
  EXPECT_EQ(host.ranks[2].loaders.ToString(), "12-14");
  EXPECT_THAT(host.notes, Contains("more ranks than CPUs: ranks 0-1,3 share 0"));
}

TEST(RankLayout, AnUnknownNodeIsNotGuessed) {
  const Machine machine = MakeMachine(2, 1, 4, 1);
  const HostLayout none =
      LayOut(machine,
             {.ranks = 2, .policy = LayoutPolicy::kGpu, .gpu_nodes = {std::nullopt, std::nullopt}});
  EXPECT_THAT(Cpus(none), ElementsAre("0-3", "4-7"));
  EXPECT_THAT(none.notes, Contains(HasSubstr("does not tell the node of GPU 1")));
  const HostLayout some =
      LayOut(machine, {.ranks = 2, .policy = LayoutPolicy::kGpu, .gpu_nodes = {std::nullopt, {0}}});
  EXPECT_THAT(Cpus(some), ElementsAre("4-7", "0-3")) << "the first goes where there is room";
}

TEST(RankLayout, AGpuOnANodeWithoutCpusGoesToTheNearest) {
  Machine machine = MakeMachine(2, 1, 4, 1);
  machine.nodes.push_back({.id = 9, .memory = GiB(90), .distances = {80, 40, 10}});
  const HostLayout host =
      LayOut(machine, {.ranks = 1, .policy = LayoutPolicy::kGpu, .gpu_nodes = {{9}}});
  EXPECT_THAT(Cpus(host), ElementsAre("4-7"));
  EXPECT_THAT(host.notes, Contains(HasSubstr("the nearest is on node 1")));
  machine.nodes[2].distances.clear();
  EXPECT_THAT(LayOut(machine, {.ranks = 1, .policy = LayoutPolicy::kGpu, .gpu_nodes = {{9}}}).notes,
              Contains(HasSubstr("no distance to others is known")));
}

TEST(RankLayout, MemoryIsOfTheNodeOrOfTheNearestThatHasSome) {
  Machine machine = MakeMachine(3, 1, 2, 1);
  machine.nodes[0].distances = {10, 30, 20};
  machine.nodes[1].distances = {30, 10, 30};
  machine.nodes[2].distances = {20, 30, 10};
  HostLayout host = LayOut(machine, {.ranks = 3});
  EXPECT_EQ(host.ranks[2].memory_node, 2);
  machine.nodes[0].memory = Bytes(0);
  EXPECT_EQ(LayOut(machine, {.ranks = 3}).ranks[0].memory_node, 2);
  EXPECT_EQ(LayOut(machine, {.ranks = 1}).ranks[0].memory_node, std::nullopt) << "three nodes";
  Budget budget = MakeBudget(machine.online);
  budget.memory_nodes = Sourced<NodeSet>{{1}, "test"};
  ASSERT_OK_AND_ASSIGN(host, LayOutRanks(machine, budget, {.ranks = 3}));
  for (const RankLayout& rank : host.ranks) EXPECT_EQ(rank.memory_node, 1);
  for (NumaNode& node : machine.nodes) node.memory = Bytes(0);
  EXPECT_EQ(LayOut(machine, {.ranks = 3}).ranks[1].memory_node, std::nullopt);
}

TEST(RankLayout, TheQuotaLimitsAllThreadsTogether) {
  const Machine machine = MakeMachine(1, 1, 8, 2);
  Budget budget = MakeBudget(machine.online);
  budget.cpu_quota = Sourced<double>{6, "test"};
  for (const LayoutPolicy policy : {LayoutPolicy::kCompact, LayoutPolicy::kGpu}) {
    ASSERT_OK_AND_ASSIGN(
        const HostLayout host,
        LayOutRanks(machine, budget, {.ranks = 2, .policy = policy, .gpu_nodes = {{0}}}));
    EXPECT_EQ(host.ranks[0].threads, 3);
    EXPECT_EQ(host.ranks[0].loader_threads, 1);
    EXPECT_EQ(host.ranks[0].cpus.size(), 8);
  }
}

TEST(RankLayout, RefusesWhatCannotBe) {
  const Machine machine = MakeMachine(1, 1, 4, 1);
  const Budget budget = MakeBudget(machine.online);
  EXPECT_THAT(LayOutRanks(machine, budget, {.ranks = 0}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("0 ranks")));
  EXPECT_THAT(LayOutRanks(machine, budget, {.cores = -1}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("-1")));
  EXPECT_THAT(LayOutRanks(machine, budget, {.cores = 2, .service_cores = 2}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("at most 1")));
  EXPECT_THAT(LayOutRanks(machine, budget, {.policy = LayoutPolicy::kGpu}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("no GPU")));
  EXPECT_THAT(LayOutRanks(machine, budget, {.ranks = 2, .cores = 3}),
              StatusIs(StatusCode::kFailedPrecondition,
                       HasSubstr("need 6 cores, but CPUs 0-3 are 4 cores; give each rank at most "
                                 "2, or start at most 1 ranks")));
  EXPECT_THAT(LayOutRanks(machine, budget, {.ranks = 4, .service_cores = 1}),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("leave none to compute")));
  EXPECT_THAT(LayOutRanks(machine, MakeBudget({7}), {}),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("usable are 7")));
}

TEST(RankLayout, EveryLayoutIsFairAndApart) {
  for (int nodes : {1, 2, 3, 8}) {
    for (int caches : {1, 3}) {
      for (int threads : {1, 2}) {
        const Machine machine = MakeMachine(nodes, caches, 4, threads);
        std::vector<std::optional<int>> gpus;
        for (int node = nodes - 1; node >= 0; --node) gpus.emplace_back(node);
        for (const LayoutPolicy policy :
             {LayoutPolicy::kCompact, LayoutPolicy::kScatter, LayoutPolicy::kGpu}) {
          for (int cores : {0, 1, 2, 5}) {
            for (int ranks = 1; ranks <= nodes * caches * 4; ++ranks) {
              const auto made = LayOutRanks(
                  machine, MakeBudget(machine.online),
                  {.ranks = ranks, .policy = policy, .cores = cores, .gpu_nodes = gpus});
              if (!made.ok()) {
                EXPECT_GT(cores, 0) << made.status();
                break;
              }
              ASSERT_EQ(made->ranks.size(), static_cast<std::size_t>(ranks));
              CpuSet all;
              int count = 0;
              for (const RankLayout& rank : made->ranks) {
                all = all | rank.cpus;
                count += rank.cpus.size();
                EXPECT_EQ(rank.threads, made->ranks[0].threads);
                EXPECT_LE(rank.threads, rank.compute.size());
                EXPECT_TRUE((rank.compute - rank.cpus).empty());
                EXPECT_TRUE((rank.loaders - rank.cpus).empty());
                EXPECT_TRUE(threads == 1 || (rank.compute & rank.loaders).empty());
                EXPECT_TRUE(cores == 0 || rank.compute.size() == cores);
                EXPECT_EQ(ParseRankLayout(ToText(rank)).value(), rank);
              }
              EXPECT_EQ(count, all.size()) << "a CPU is shared";
              EXPECT_EQ(made->sharing, CpuSharing::kNothing);
            }
          }
        }
      }
    }
  }
}

TEST(RankLayout, IsTextAndBack) {
  const RankLayout layout =
      LayOut(MakeMachine(2, 2, 2, 2),
             {.ranks = 4, .policy = LayoutPolicy::kGpu, .gpu_nodes = {{1}, {0}}})
          .ranks[2];
  EXPECT_EQ(ToText(layout),
            "cpus=6-7,14-15;compute=6-7;communication=15;loaders=14;nodes=1;threads=2;"
            "loader_threads=1;memory=1;gpu=0");
  Env env;
  EXPECT_EQ(RankLayoutFromEnv(env).value(), std::nullopt);
  env.ait_layout = ToText(layout);
  EXPECT_EQ(RankLayoutFromEnv(env).value(), layout);
  for (const auto& [text, error] :
       {std::pair("", "not name=value"), std::pair("cpus=0", "no CPUs of compute"),
        std::pair("cpus=0;compute=1;communication=0;loaders=0", "CPUs 1 of compute"),
        std::pair("threads=0", "threads is at least 1"), std::pair("memory=-1", "at least 0"),
        std::pair("cpus=x", "x"), std::pair("cores=1", "\"cores\" is no part")}) {
    EXPECT_THAT(ParseRankLayout(text), StatusIs(StatusCode::kInvalidArgument, HasSubstr(error)));
  }
  env.ait_layout = "cpus";
  EXPECT_THAT(RankLayoutFromEnv(env),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("AIT_LAYOUT: \"cpus\"")));
}

TEST(RankLayout, NamesOfPolicies) {
  for (const LayoutPolicy policy :
       {LayoutPolicy::kCompact, LayoutPolicy::kScatter, LayoutPolicy::kGpu}) {
    EXPECT_EQ(ParseLayoutPolicy(Name(policy)).value(), policy);
  }
  EXPECT_THAT(ParseLayoutPolicy("close"),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("compact, scatter or gpu")));
}

TEST(RankLayout, AppliedItBindsThisThreadAndTellsOfItsMemory) {
  std::thread([] {
    ASSERT_OK_AND_ASSIGN(const Machine machine, ReadMachine());
    ASSERT_OK_AND_ASSIGN(const Budget budget, ReadBudget());
    ASSERT_OK_AND_ASSIGN(const HostLayout host, LayOutRanks(machine, budget, {.ranks = 2}));
    const RankLayout& mine = host.ranks[1];
    ASSERT_OK_AND_ASSIGN(const AppliedLayout applied, ApplyRankLayout(mine));
    EXPECT_EQ(ThisThreadBinding().value(), mine.cpus);
    if (applied.memory_preferred) {
      EXPECT_EQ(PreferredMemoryNode().value(), mine.memory_node);
      EXPECT_EQ(applied.memory, StrCat("preferred on node ", *mine.memory_node));
    } else {
      EXPECT_THAT(applied.memory, HasSubstr("first touch: "));
    }
    RankLayout nowhere = mine;
    nowhere.memory_node = 1000;
    ASSERT_OK_AND_ASSIGN(const AppliedLayout touched, ApplyRankLayout(nowhere));
    EXPECT_FALSE(touched.memory_preferred);
    EXPECT_THAT(touched.memory, HasSubstr("first touch: cannot prefer the memory of node 1000"));
    nowhere.cpus = {9999};
    EXPECT_THAT(ApplyRankLayout(nowhere), StatusIs(StatusCode::kFailedPrecondition));
  }).join();
}

}  // namespace
}  // namespace ait

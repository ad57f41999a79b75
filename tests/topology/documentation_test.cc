// SPDX-License-Identifier: Apache-2.0
// The code of docs/topology.md, and its table of divisions.
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ait/base/env.h"
#include "ait/topology/binding.h"
#include "ait/topology/budget.h"
#include "ait/topology/cpu_division.h"
#include "ait/topology/machine.h"
#include "ait/topology/rank_layout.h"
#include "support/document.h"
#include "support/status_matchers.h"
#include "topology/fixture.h"

namespace ait {
namespace {

// clang-format off: as the page shows it
Status BindRank(int local_rank, int local_world_size) {
  AIT_ASSIGN_OR_RETURN(const Machine machine, ReadMachine());
  AIT_ASSIGN_OR_RETURN(const Budget budget, ReadBudget());
  AIT_ASSIGN_OR_RETURN(const CpuDivision division, DivideCpus(machine, budget, local_world_size));
  const RankCpus& mine = division.ranks[static_cast<std::size_t>(local_rank)];
  AIT_RETURN_IF_ERROR(BindThisThread(mine.cpus));
  return ThisThreadBinding().value() == mine.cpus ? OkStatus() : InternalError("not bound");
}

Status LayOutRank(const Machine& machine, const Budget& budget, int local_rank,
                  int local_world_size) {
  Status bound;
  AIT_ASSIGN_OR_RETURN(const HostLayout host, LayOutRanks(machine, budget, {.ranks = local_world_size}));
  const RankLayout& rank = host.ranks[static_cast<std::size_t>(local_rank)];
  AIT_ASSIGN_OR_RETURN(const AppliedLayout applied, ApplyRankLayout(rank));
  std::thread loader([&] { bound = BindThisThread(rank.loaders); });
  loader.join();
  return applied.memory.empty() ? InternalError("says nothing of memory") : bound;
}

StatusOr<std::optional<RankLayout>> ReadGivenLayout() {
  AIT_ASSIGN_OR_RETURN(const std::optional<RankLayout> given, RankLayoutFromEnv(Env::FromProcess()));
  return given;
}

Status TouchOnNode(const Machine& machine) {
  AIT_ASSIGN_OR_RETURN(const ScopedBinding binding, ScopedBinding::Create(machine.nodes[0].cpus));
  return OkStatus();
}

StatusOr<Machine> ReadHost() {
  const SystemRoots roots = {.proc = "/host/proc", .sys = "/host/sys"};
  StatusOr<Machine> host = ReadMachine(roots);
  return host;
}
// clang-format on

TEST(TopologyPage, ItsCodeIsThis) {
  testing::ExpectCodeIsCompiled(AIT_DOCS "/topology.md", AIT_SOURCE);
}

TEST(TopologyPage, ItsCodeRuns) {
  std::thread([] {
    EXPECT_OK(LayOutRank(ReadMachine().value(), ReadBudget().value(), 1, 2));
    EXPECT_OK(ReadGivenLayout());
    EXPECT_OK(BindRank(1, 2));
    Machine machine;
    machine.nodes = {{.id = 0, .cpus = ThisThreadBinding().value()}};
    EXPECT_OK(TouchOnNode(machine));
    EXPECT_THAT(ReadHost(), testing::StatusIs(StatusCode::kNotFound));
  }).join();
}

TEST(TopologyPage, ItsTableOfDivisionsIsTrue) {
  testing::Fixture fixture;
  fixture.AddProc(GiB(1), "0-31");
  fixture.Write("sys/devices/system/cpu/online", "0-31");
  fixture.Write("sys/devices/system/node/online", "0-1");
  fixture.AddNode(0, "0-7,16-23", GiB(1));
  fixture.AddNode(1, "8-15,24-31", GiB(1));
  for (int core = 0; core < 16; ++core) {
    const int first = core / 4 * 4;
    const std::string threads = StrCat(core, ",", core + 16);
    fixture.AddCpus(threads, threads,
                    StrCat(first, "-", first + 3, ",", first + 16, "-", first + 19), core / 8);
  }
  ASSERT_OK_AND_ASSIGN(const Machine machine, ReadMachine(fixture.roots()));
  ASSERT_OK_AND_ASSIGN(const Budget budget, ReadBudget(fixture.roots()));
  struct Row {
    int ranks;
    const char* first;
    const char* second;
    int threads;
    const char* shared;
  };
  for (const Row& row :
       {Row{2, "0-7,16-23", "8-15,24-31", 8, "nothing"},
        Row{4, "0-3,16-19", "4-7,20-23", 4, "nothing"}, Row{16, "0,16", "1,17", 1, "nothing"},
        Row{32, "0", "16", 1, "cores"}, Row{33, "0-31", "0-31", 1, "cpus"}}) {
    ASSERT_OK_AND_ASSIGN(const CpuDivision division, DivideCpus(machine, budget, row.ranks));
    EXPECT_EQ(division.ranks[0].cpus.ToString(), row.first) << row.ranks;
    EXPECT_EQ(division.ranks[1].cpus.ToString(), row.second) << row.ranks;
    EXPECT_EQ(division.ranks[0].threads, row.threads) << row.ranks;
    EXPECT_EQ(Name(division.sharing), row.shared) << row.ranks;
  }
  const auto lists = [&](const RankLayoutOptions& options) {
    std::vector<std::string> cpus;  // of the first threads, as in the table of policies
    const HostLayout host = LayOutRanks(machine, budget, options).value();
    for (const RankLayout& rank : host.ranks) cpus.push_back(rank.compute.ToString());
    return cpus;
  };
  using ::testing::ElementsAre;
  EXPECT_THAT(lists({.ranks = 4}), ElementsAre("0-3", "4-7", "8-11", "12-15"));
  EXPECT_THAT(lists({.ranks = 4, .policy = LayoutPolicy::kScatter}),
              ElementsAre("0-3", "8-11", "4-7", "12-15"));
  EXPECT_THAT(lists({.ranks = 4, .policy = LayoutPolicy::kGpu, .gpu_nodes = {{1}, {0}, {1}, {0}}}),
              ElementsAre("8-11", "0-3", "12-15", "4-7"));
  ASSERT_OK_AND_ASSIGN(const CpuDivision one, DivideCpus(machine, budget, 1));
  EXPECT_EQ(one.ranks[0].cpus.ToString(), "0-31");
  EXPECT_EQ(one.ranks[0].threads, 16);
}

}  // namespace
}  // namespace ait

// SPDX-License-Identifier: Apache-2.0
#include "cli/topo.h"

#include <cstdio>
#include <cxxopts.hpp>
#include <string>

#include "ait/launch/launcher.h"
#include "ait/topology/budget.h"
#include "ait/topology/cpu_division.h"
#include "ait/topology/machine.h"
#include "cli/program.h"

namespace ait::cli {
namespace {

constexpr char kExamples[] = R"(
Examples:
  ait topo                 the machine, the limits of this process, one rank
  ait topo -n 4            how four ranks of `ait run` would share the CPUs
)";

std::string Size(Bytes bytes) {
  if (bytes == Bytes(0)) return "unknown";
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f GiB", static_cast<double>(bytes.value()) / (1 << 30));
  return text;
}

template <typename T, typename Format>
std::string Limit(const std::optional<Sourced<T>>& limit, Format format) {
  return limit ? StrCat(format(limit->value), "  (", limit->source, ")") : "none";
}

std::string Describe(const Machine& machine) {
  std::string text =
      StrCat("machine\n  CPUs: ", machine.online.size(), " (", machine.online.ToString(),
             "), cores: ", machine.cores.size(), "\n  memory: ", Size(machine.memory), "\n");
  for (const NumaNode& node : machine.nodes) {
    text += StrCat("  node ", node.id, ": CPUs ", node.cpus.empty() ? "none" : node.cpus.ToString(),
                   ", memory ", Size(node.memory), "\n");
  }
  for (const CacheGroup& group : machine.cache_groups) {
    if (group.level == 0) continue;
    text += StrCat("  L", group.level, " cache of ", group.size.value() >> 10, " KiB: CPUs ",
                   group.cpus.ToString(), "\n");
  }
  for (const std::string& note : machine.notes) text += StrCat("  note: ", note, "\n");
  return text;
}

std::string Describe(const Budget& budget) {
  const auto cpus = [](const CpuSet& set) { return set.ToString(); };
  const auto number = [](double value) { return StrCat(value); };
  return StrCat("this process\n  affinity: ", budget.affinity.value.ToString(),
                "\n  cpuset: ", Limit(budget.cpuset, cpus),
                "\n  CPU quota: ", Limit(budget.cpu_quota, number),
                "\n  memory limit: ", Limit(budget.memory_limit, Size),
                "\n  memory available: ", Limit(budget.memory_available, Size),
                "\n  worth of threads: ", budget.cpu_count(), "\n");
}

std::string Describe(const CpuDivision& division) {
  std::string text = StrCat(Counted(static_cast<std::int64_t>(division.ranks.size()), "rank"),
                            ", sharing ", Name(division.sharing), "\n");
  for (std::size_t rank = 0; rank < division.ranks.size(); ++rank) {
    const RankCpus& mine = division.ranks[rank];
    text += StrCat("  rank ", rank, ": CPUs ", mine.cpus.ToString(), ", threads ", mine.threads,
                   ", nodes ", mine.nodes.empty() ? "unknown" : mine.nodes.ToString(), "\n");
  }
  return text;
}

StatusOr<std::string> DescribeAll(int ranks) {
  AIT_ASSIGN_OR_RETURN(const Machine machine, ReadMachine());
  AIT_ASSIGN_OR_RETURN(const Budget budget, ReadBudget());
  AIT_ASSIGN_OR_RETURN(const CpuDivision division, DivideCpus(machine, budget, ranks));
  return StrCat(Describe(machine), Describe(budget), Describe(division));
}

}  // namespace

int RunTopo(int argc, char** argv) {
  cxxopts::Options options(
      "ait topo",
      "Prints the machine, what this process may use of it, and how ranks would "
      "share it.\n");
  cxxopts::OptionAdder add = options.add_options();
  add("n,ranks", "number of ranks", cxxopts::value<std::string>()->default_value("1"), "N");
  add("h,help", "print this help");
  try {
    const cxxopts::ParseResult parsed = options.parse(argc, argv);
    if (parsed.count("help") != 0) {
      std::printf("%s%s", options.help().c_str(), kExamples);
      return kSuccess;
    }
    if (!parsed.unmatched().empty()) {
      return FailUsage("topo", "takes no argument " + parsed.unmatched().front());
    }
    const auto ranks = ParseNumber("-n", parsed["ranks"].as<std::string>(), 1, kMaxLaunchRanks,
                                   StrCat("a whole number from 1 to ", kMaxLaunchRanks));
    if (!ranks.ok()) return FailUsage("topo", Message(ranks.status()));
    const auto text = DescribeAll(*ranks);
    if (!text.ok()) return Fail("topo", text.status());
    std::fputs(text->c_str(), stdout);
    return kSuccess;
  } catch (const cxxopts::exceptions::exception& error) {
    return FailUsage("topo", error);
  }
}

}  // namespace ait::cli

// SPDX-License-Identifier: Apache-2.0
#include "cli/topo.h"

#include <cstdio>
#include <cxxopts.hpp>
#include <string>
#include <utility>
#include <vector>

#include "ait/launch/launcher.h"
#include "cli/program.h"
#include "cli/topo_report.h"
#include "launch/plan_internal.h"

namespace ait::cli {
namespace {

constexpr char kExamples[] = R"(
Examples:
  ait topo                       the machine, the limits of this process, one rank
  ait topo -n 4                  how four ranks of `ait run` would share the CPUs
  ait topo -n 8 --policy gpu     each rank next to its GPU
  ait topo -n 2 --policy all --json
)";

cxxopts::Options MakeOptions() {
  cxxopts::Options options(
      "ait topo",
      "Prints the machine, what this process may use of it, and how ranks would be laid out.\n");
  cxxopts::OptionAdder add = options.add_options();
  const auto number = [](const char* fallback) {
    return cxxopts::value<std::string>()->default_value(fallback);
  };
  add("n,ranks", "number of ranks", number("1"), "N");
  add("policy", "compact, scatter, gpu, or all of them", number("compact"), "LAYOUT");
  add("cores", "cores of each rank (0: equal shares of all)", number("0"), "C");
  add("service-cores", "of those, cores for communication and loading", number("0"), "C");
  add("json", "print JSON");
  add("h,help", "print this help");
  return options;
}

struct Request {
  RankLayoutOptions layout;
  std::vector<LayoutPolicy> policies;
};

StatusOr<Request> ReadRequest(const cxxopts::ParseResult& parsed) {
  Request request;
  const auto text = [&](const char* name) { return parsed[name].as<std::string>(); };
  AIT_ASSIGN_OR_RETURN(request.layout.ranks,
                       ParseNumber("-n", text("ranks"), 1, kMaxLaunchRanks,
                                   StrCat("a whole number from 1 to ", kMaxLaunchRanks)));
  AIT_ASSIGN_OR_RETURN(request.layout.cores,
                       ParseNumber("--cores", text("cores"), 0, CpuSet::kMaxId + 1,
                                   "a number of cores, 0 for equal shares"));
  AIT_ASSIGN_OR_RETURN(request.layout.service_cores,
                       ParseNumber("--service-cores", text("service-cores"), 0, CpuSet::kMaxId + 1,
                                   "a number of cores"));
  const std::string policy = text("policy");
  if (policy == "all") {
    request.policies = {LayoutPolicy::kCompact, LayoutPolicy::kScatter, LayoutPolicy::kGpu};
    return request;
  }
  const auto one = ParseLayoutPolicy(policy);
  if (!one.ok()) {
    return InvalidArgumentError("option --policy cannot be '", policy,
                                "': give compact, scatter, gpu or all");
  }
  request.policies = {*one};
  return request;
}

StatusOr<TopoReport> Read(Request request) {
  TopoReport report;
  AIT_ASSIGN_OR_RETURN(report.machine, ReadMachine());
  AIT_ASSIGN_OR_RETURN(report.budget, ReadBudget());
  report.devices = ReadDevices();
  report.huge_pages = ReadHugePages();
  for (const LayoutPolicy policy : request.policies) {
    RankLayoutOptions& options = request.layout;
    options.policy = policy;
    if (policy == LayoutPolicy::kGpu) {
      options.gpu_nodes = internal::NodesOfGpus();
      if (options.gpu_nodes.empty() && request.policies.size() > 1) continue;  // of all, the others
    }
    AIT_ASSIGN_OR_RETURN(HostLayout host, LayOutRanks(report.machine, report.budget, options));
    report.layouts.push_back({.policy = policy, .host = std::move(host)});
  }
  return report;
}

}  // namespace

int RunTopo(int argc, char** argv) {
  cxxopts::Options options = MakeOptions();
  try {
    const cxxopts::ParseResult parsed = options.parse(argc, argv);
    if (parsed.count("help") != 0) {
      std::printf("%s%s", options.help().c_str(), kExamples);
      return kSuccess;
    }
    if (!parsed.unmatched().empty()) {
      return FailUsage("topo", "takes no argument " + parsed.unmatched().front());
    }
    const auto request = ReadRequest(parsed);
    if (!request.ok()) return FailUsage("topo", Message(request.status()));
    const auto report = Read(*request);
    if (!report.ok()) return Fail("topo", report.status());
    std::fputs((parsed.count("json") != 0 ? TopoJson(*report) : TopoText(*report)).c_str(), stdout);
    return kSuccess;
  } catch (const cxxopts::exceptions::exception& error) {
    return FailUsage("topo", error);
  }
}

}  // namespace ait::cli

// SPDX-License-Identifier: Apache-2.0
// A whole training step of the GPT on two ranks of one thread each, over shared memory and over
// Gloo, against torch DDP in Python, which has Gloo.
//
// The program starts itself as two ranks, which alternate, round by round, between a step with data
// parallelism over shared memory ("shm"), over Gloo ("gloo") and the same engine alone on its rank
// ("plain"); and, with --peers, the
// Python peer, which alternates between its own variants. The two programs take turns as well
// (blocks=3). Work and configurations: benchmarks/peers/gpt.py.
//
// Settings: rounds=7 (a block), blocks=3, configurations=A,B.

#include <ATen/Parallel.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "ait/base/throw_on_error.h"
#include "ait/comm/thread_group.h"
#include "ait/comm/world.h"
#include "ait/tensor/gloo.h"
#include "gpt_step.h"
#include "support/rank_programs.h"
#include "support/report.h"

namespace ait {
namespace {

using benchmarks::Median;
using Samples = benchmarks::Milliseconds;

/// What a rank does: alternates the variants, and rank 0 prints one JSON object.
int RunRank(const std::string& name, int rounds) {
  at::set_num_threads(1);
  const GptConfig config = *GptConfig::Named(name);
  auto world = ThrowOnError(World::FromEnvironment({.transport = Gloo()}));
  torch::manual_seed(1);
  const benchmarks::GptBatch batch = benchmarks::GptBatch::Random(config);
  std::vector<benchmarks::NamedStep> steps;
  const auto add = [&](const std::string& variant, std::shared_ptr<Communicator> communicator) {
    auto step = std::make_shared<benchmarks::GptStep>(config, std::move(communicator));
    steps.emplace_back(variant, [step, &batch] { step->Run(batch); });
  };
  add("shm", benchmarks::JoinSharedMemoryOf(*world, "benchmark"));
  add("gloo", ThrowOnError(world->communicator()->Split(0, world->rank().value())));
  add("plain", MakeThreadGroup(WorldSize(1))[0]);
  const Samples samples = benchmarks::Alternate(*world->communicator(), steps, rounds);
  if (world->rank() == Rank(0)) std::printf("%s\n", nlohmann::json(samples).dump().c_str());
  return 0;
}

void Append(Samples& all, const std::string& variant, const std::vector<double>& values) {
  all[variant].insert(all[variant].end(), values.begin(), values.end());
}

/// The best of the peer's four ways to run `wrap`.
double Fastest(const Samples& samples, std::initializer_list<const char*> variants) {
  double best = 1e30;
  for (const char* variant : variants) best = std::min(best, Median(samples.at(variant)));
  return best;
}

void Measure(benchmarks::Report& report, const std::string& self, const std::string& name) {
  const std::string rounds = report.Setting("rounds", "7");
  Samples ours, peers;
  for (int block = 0; block < std::stoi(report.Setting("blocks", "3")); ++block) {
    for (const auto& row : benchmarks::RunRanks({self, "rank", name, rounds})) {
      for (const auto& [variant, values] : row.items()) Append(ours, variant, values);
    }
    if (report.peers_python().empty()) continue;
    for (const auto& row : benchmarks::RunRanks(
             {report.peers_python(), AIT_PEER_SCRIPT, name, rounds}, RankPort::kFree)) {
      Append(peers, row["variant"].get<std::string>() + "/" + row["optimizer"].get<std::string>(),
             row["step_ms"]);
    }
  }
  const double plain = Median(ours["plain"]);
  const GptConfig config = *GptConfig::Named(name);
  const double tokens = 2.0 * static_cast<double>(config.batch * config.context);
  for (const auto& [variant, values] : peers) {
    std::printf("%s: torch %s %.1f ms\n", name.c_str(), variant.c_str(), Median(values));
  }
  for (const std::string transport : {"shm", "gloo"}) {
    const double step = Median(ours[transport]);
    std::printf(
        "%s over %s: step %.1f ms (min %.1f), without data parallelism %.1f ms (min %.1f), exposed "
        "%.1f ms = %.1f %%\n",
        name.c_str(), transport.c_str(), step, *std::ranges::min_element(ours[transport]), plain,
        *std::ranges::min_element(ours["plain"]), step - plain, 100 * (step - plain) / step);
    const std::string prefix = name + (transport == "shm" ? "/" : "/gloo_");
    if (peers.empty()) {
      report.AddTime(prefix + "step/plain",
                     {.ms = step, .baseline = "one rank alone", .baseline_ms = plain});
      continue;
    }
    const double peer =
        Fastest(peers, {"ddp/fused", "ddp-view/fused", "ddp/foreach", "ddp-view/foreach"});
    report.AddRate(prefix + "tokens_per_s/torch-ddp", {.value = 1e3 * tokens / step,
                                                       .unit = "tokens/s",
                                                       .baseline = "torch DDP, fastest variant",
                                                       .baseline_value = 1e3 * tokens / peer});
    report.AddOverhead(prefix + "exposed/torch-ddp",
                       {.with_ms = ours[transport],
                        .without_ms = ours["plain"],
                        .baseline = "torch DDP minus plain, both fused",
                        .baseline_with_ms = peers["ddp/fused"],
                        .baseline_without_ms = peers["plain/fused"]});
  }
  if (peers.empty()) return;
  report.AddTime(name + "/plain_step/torch",
                 {.ms = plain,
                  .baseline = "torch without DDP",
                  .baseline_ms = Fastest(peers, {"plain/fused", "plain/foreach"})});
}

int Main(int argc, char** argv) {
  if (argc == 4 && std::string(argv[1]) == "rank") return RunRank(argv[2], std::stoi(argv[3]));
  benchmarks::Report report(argc, argv);
  std::istringstream names(report.Setting("configurations", "A,B"));
  for (std::string name; std::getline(names, name, ',');) Measure(report, argv[0], name);
  return report.Finish();
}

}  // namespace
}  // namespace ait

int main(int argc, char** argv) {
  try {
    return ait::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench gpt: %s\n", error.what());
    return 1;
  }
}

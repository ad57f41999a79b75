// SPDX-License-Identifier: Apache-2.0
// The modes of precision: tokens a second of a training step of the GPT on two ranks of one thread
// each, over shared memory, against the same engine in fp32 and, with --peers, torch DDP in Python
// with bf16 autocast.
//
// The program starts itself as two ranks, in which all modes take turns; that pair takes turns
// (blocks=3) with the peer's (benchmarks/peers/precision_step.py). "autocast" has fp32 parameters and
// casts them in forward; the others keep their parameters in bf16.
//
// Settings: rounds=5 (a block), blocks=3, configurations=A,
// modes=fp32,autocast,bf16,bf16-remainder,bf16-kahan,bf16-stochastic,bf16-pure, stage=0.

#include <ATen/Parallel.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "ait/base/throw_on_error.h"
#include "ait/comm/world.h"
#include "ait/optim/precision.h"
#include "ait/tensor/gloo.h"
#include "gpt_step.h"
#include "support/rank_programs.h"
#include "support/report.h"

namespace ait::benchmarks {
namespace {

std::vector<std::string> Words(const std::string& text) {
  std::vector<std::string> words;
  std::istringstream stream(text);
  for (std::string word; std::getline(stream, word, ',');) words.push_back(word);
  return words;
}

int RunRank(const std::string& configuration, int rounds, const std::string& modes, int stage) {
  at::set_num_threads(1);
  const GptConfig config = *GptConfig::Named(configuration);
  auto world = ThrowOnError(World::FromEnvironment({.transport = Gloo()}));
  torch::manual_seed(1);
  const GptBatch batch = GptBatch::Random(config);
  std::vector<NamedStep> steps;
  for (const std::string& mode : Words(modes)) {
    const bool casts = mode == "autocast";
    DataParallelOptions options = {.zero_stage = static_cast<ZeroStage>(stage)};
    if (!casts) options.precision = ThrowOnError(PrecisionNamed(mode));
    auto step = std::make_shared<GptStep>(config, JoinSharedMemoryOf(*world, mode), options,
                                          casts ? DType::kBFloat16 : DType::kFloat32);
    steps.emplace_back(mode, [step, &batch] { step->Run(batch); });
  }
  const Milliseconds samples = Alternate(*world->communicator(), steps, rounds);
  if (world->rank() == Rank(0)) std::printf("%s\n", nlohmann::json(samples).dump().c_str());
  return 0;
}

void Append(Milliseconds& samples, const std::string& variant, const nlohmann::json& ms) {
  for (const auto& value : ms) samples[variant].push_back(value.get<double>());
}

void Measure(Report& report, const std::string& self, const std::string& name) {
  const std::string rounds = report.Setting("rounds", "5");
  const std::string modes = report.Setting(
      "modes", "fp32,autocast,bf16,bf16-remainder,bf16-kahan,bf16-stochastic,bf16-pure");
  const std::string stage = report.Setting("stage", "0");
  Milliseconds ours, peers;
  for (int block = 0; block < std::stoi(report.Setting("blocks", "3")); ++block) {
    for (const auto& row : RunRanks({self, "rank", name, rounds, modes, stage})) {
      for (const auto& [variant, ms] : row.items()) Append(ours, variant, ms);
    }
    if (report.peers_python().empty()) continue;
    for (const auto& row :
         RunRanks({report.peers_python(), AIT_PEER_SCRIPT, name, rounds}, RankPort::kFree)) {
      Append(peers, row["variant"], row["step_ms"]);
    }
  }
  const GptConfig config = *GptConfig::Named(name);
  const auto rate = [&](const std::vector<double>& ms) {
    return 2e3 * static_cast<double>(config.batch * config.context) / Median(ms);
  };
  const auto add = [&](const std::string& mode, const std::string& against,
                       const std::string& baseline, const std::vector<double>& theirs) {
    report.AddRate(name + "/" + mode + "/" + against, {.value = rate(ours.at(mode)),
                                                       .unit = "tokens/s",
                                                       .baseline = baseline,
                                                       .baseline_value = rate(theirs)});
  };
  for (const std::string& mode : Words(modes)) {
    if (mode != "fp32" && ours.contains("fp32")) add(mode, "own-fp32", "own fp32", ours["fp32"]);
    const std::string twin = mode == "fp32" ? "fp32" : mode == "bf16-pure" ? "bf16" : "autocast";
    if (peers.contains(twin)) add(mode, "torch-" + twin, "torch DDP, " + twin, peers[twin]);
  }
}

int Main(int argc, char** argv) {
  if (argc == 6 && std::string(argv[1]) == "rank") {
    return RunRank(argv[2], std::stoi(argv[3]), argv[4], std::stoi(argv[5]));
  }
  Report report(argc, argv);
  for (const std::string& name : Words(report.Setting("configurations", "A"))) {
    Measure(report, argv[0], name);
  }
  return report.Finish();
}

}  // namespace
}  // namespace ait::benchmarks

int main(int argc, char** argv) {
  try {
    return ait::benchmarks::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench precision: %s\n", error.what());
    return 1;
  }
}

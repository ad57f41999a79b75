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
#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/randint.h>
#include <torch/utils.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <vector>

#include "ait/base/throw_on_error.h"
#include "ait/comm/shared_memory.h"
#include "ait/comm/tcp_store.h"
#include "ait/comm/thread_group.h"
#include "ait/comm/world.h"
#include "ait/launch/launcher.h"
#include "ait/optim/adam.h"
#include "ait/parallel/data_parallel.h"
#include "ait/parallel/module.h"
#include "ait/tensor/gloo.h"
#include "gpt.h"
#include "support/report.h"

namespace ait {
namespace {

using benchmarks::Median;
using Samples = std::map<std::string, std::vector<double>>;  // variant -> ms of each round

/// One way to take a step, with a model of its own.
class Variant {
 public:
  Variant(const GptConfig& config, std::shared_ptr<Communicator> communicator) : model_(config) {
    engine_ = ThrowOnError(DataParallel::Create(std::move(communicator), NamedParameters(*model_)));
    ThrowOnError(engine_->SetOptimizer(AdamW{{.learning_rate = 3e-4,
                                              .beta1 = 0.9,
                                              .beta2 = 0.95,
                                              .epsilon = 1e-8,
                                              .weight_decay = 0.1}}));
  }

  void Step(const at::Tensor& inputs, const at::Tensor& targets) {
    ThrowOnError(engine_->BeginMicroStep(MicroStep::kLast));
    at::Tensor loss = at::cross_entropy_loss(model_->forward(inputs).flatten(0, 1),
                                             targets.flatten(), {}, at::Reduction::Sum);
    ThrowOnError(engine_->Backward(loss));
    const GradientSummary summary =
        ThrowOnError(engine_->FinishGradients({.count = targets.numel()}));
    ThrowOnError(engine_->Update({.gradient_scale = 1.0 / static_cast<double>(summary.count)}));
  }

 private:
  Gpt model_;
  std::unique_ptr<DataParallel> engine_;
};

double Milliseconds(Duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

constexpr std::chrono::seconds kJoin(60);

/// What a rank does: alternates the variants, and rank 0 prints one JSON object.
int RunRank(const std::string& name, int rounds) {
  at::set_num_threads(1);
  const GptConfig config = *GptConfig::Named(name);
  auto world = ThrowOnError(World::FromEnvironment({.transport = Gloo()}));
  Communicator& all = *world->communicator();
  torch::manual_seed(1);
  std::map<std::string, std::unique_ptr<Variant>> variants;
  variants["shm"] = std::make_unique<Variant>(
      config,
      std::make_shared<Communicator>(ThrowOnError(JoinSharedMemory(
          *world->store(), "benchmark", world->rank(), world->size(), Deadline::After(kJoin)))));
  variants["gloo"] = std::make_unique<Variant>(config, world->communicator());
  variants["plain"] = std::make_unique<Variant>(config, MakeThreadGroup(WorldSize(1))[0]);
  const at::Tensor tokens =
      at::randint(config.vocabulary, {config.batch, config.context + 1}, at::kLong);
  const at::Tensor inputs = tokens.slice(1, 0, config.context).contiguous();
  const at::Tensor targets = tokens.slice(1, 1).contiguous();

  Samples samples;
  for (int round = 0; round < rounds + 2; ++round) {
    for (const auto& [variant, step] : variants) {
      ThrowOnError(all.Barrier().Wait());
      const Time start = SystemClock().now();
      step->Step(inputs, targets);
      std::vector<double> slowest = {Milliseconds(SystemClock().now() - start)};
      ThrowOnError(all.AllReduce(View(slowest), ReduceOp::kMax).Wait());
      if (round >= 2) samples[variant].push_back(slowest[0]);
    }
  }
  if (world->rank() == Rank(0)) std::printf("%s\n", nlohmann::json(samples).dump().c_str());
  return 0;
}

/// Collects what the ranks print on standard output.
class Lines final : public RankOutput {
 public:
  void Write(Rank, RankStream stream, std::string_view text) override {
    if (stream == RankStream::kOutput) text_ += text;
    if (stream == RankStream::kError) std::fwrite(text.data(), 1, text.size(), stderr);
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

/// Runs a program as two ranks of one thread each, unbound as the peer is; returns what they print.
std::string RunRanks(std::vector<std::string> command, RankPort port) {
  Lines lines;
  auto launcher = ThrowOnError(Launcher::Create({.command = std::move(command),
                                                 .world_size = WorldSize(2),
                                                 .binding = CpuBinding::kNone,
                                                 .threads = 1,
                                                 .output = &lines,
                                                 .port = port}));
  ThrowOnError(ThrowOnError(launcher.Run()).status);
  return lines.text();
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
    const auto printed =
        nlohmann::json::parse(RunRanks({self, "rank", name, rounds}, RankPort::kInherited));
    for (const auto& [variant, values] : printed.items()) Append(ours, variant, values);
    if (report.peers_python().empty()) continue;
    std::istringstream lines(
        RunRanks({report.peers_python(), AIT_PEER_SCRIPT, name, rounds}, RankPort::kFree));
    for (std::string line; std::getline(lines, line);) {
      const auto row = nlohmann::json::parse(line);
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

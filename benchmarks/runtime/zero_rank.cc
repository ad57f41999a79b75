// SPDX-License-Identifier: Apache-2.0
#include "zero_rank.h"

#include <ATen/Parallel.h>
#include <torch/utils.h>

#include <cstdio>
#include <nlohmann/json.hpp>
#include <thread>

#include "ait/base/throw_on_error.h"
#include "ait/comm/thread_group.h"
#include "ait/comm/world.h"
#include "ait/tensor/gloo.h"
#include "gpt_step.h"
#include "support/memory_watch.h"

namespace ait::benchmarks {
namespace {

constexpr double kMiB = 1 << 20;

}  // namespace

const std::vector<std::string>& StageNames() {
  static const std::vector<std::string> kNames = {"own-ddp", "zero1", "zero2", "zero3"};
  return kNames;
}

DataParallelOptions StageOptions(ZeroStage stage) { return {.zero_stage = stage}; }

int RunStepRank(const std::string& configuration, int rounds, const std::vector<int>& stages) {
  at::set_num_threads(1);
  const GptConfig config = *GptConfig::Named(configuration);
  auto world = ThrowOnError(World::FromEnvironment({.transport = Gloo()}));
  torch::manual_seed(1);
  const GptBatch batch = GptBatch::Random(config);
  std::vector<NamedStep> steps;
  for (const int stage : stages) {
    const std::string& name = StageNames()[static_cast<std::size_t>(stage)];
    auto step = std::make_shared<GptStep>(config, JoinSharedMemoryOf(*world, name),
                                          StageOptions(static_cast<ZeroStage>(stage)));
    steps.emplace_back(name, [step, &batch] { step->Run(batch); });
  }
  const Milliseconds samples = Alternate(*world->communicator(), steps, rounds);
  if (world->rank() == Rank(0)) std::printf("%s\n", nlohmann::json(samples).dump().c_str());
  return 0;
}

int RunMemoryRank(const std::string& configuration, int stage) {
  constexpr int kSteps = 6;
  at::set_num_threads(1);
  const GptConfig config = *GptConfig::Named(configuration);
  auto world = ThrowOnError(World::FromEnvironment({.transport = Gloo()}));
  auto communicator = JoinSharedMemoryOf(*world, "memory");
  torch::manual_seed(1);
  const GptBatch batch = GptBatch::Random(config);

  {  // the code of a step is in memory before
    const GptConfig tiny = *GptConfig::Named("tiny");
    GptStep(tiny, JoinSharedMemoryOf(*world, "warm")).Run(GptBatch::Random(tiny));
  }
  ThrowOnError(world->communicator()->Barrier().Wait());
  const ResidentMiB before = ResidentMiB::Now();
  ResidentWatch watch;
  GptStep step(config, communicator, StageOptions(static_cast<ZeroStage>(stage)));
  for (int i = 0; i < kSteps; ++i) step.Run(batch);
  const ResidentMiB peak = watch.Stop(), settled = ResidentMiB::Now();
  const std::int64_t tensors = TensorMemory::PeakOf([&] { step.Run(batch); });

  const MemoryReport memory = step.engine().Memory();
  std::printf("%s\n", nlohmann::json({{"rank", world->rank().value()},
                                      {"parameters", step.parameter_count()},
                                      {"growth_mib", peak.own() - before.own()},
                                      {"growth_anonymous_mib", peak.anonymous - before.anonymous},
                                      {"growth_file_mib", peak.file - before.file},
                                      {"growth_shared_mib", peak.shared - before.shared},
                                      {"growth_rss_mib", peak.resident - before.resident},
                                      {"settled_mib", settled.own() - before.own()},
                                      {"activations_mib", static_cast<double>(tensors) / kMiB},
                                      {"gathered_mib", memory.peak_gathered / kMiB},
                                      {"buckets_mib", memory.peak_buckets / kMiB},
                                      {"engine_mib", memory.measured.total() / kMiB}})
                          .dump()
                          .c_str());
  ThrowOnError(world->communicator()->Barrier().Wait());  // the peer's pages are there until here
  return 0;
}

std::vector<RankMemory> ReportsOf(const std::string& configuration,
                                  const DataParallelOptions& options, int ranks) {
  const GptConfig config = *GptConfig::Named(configuration);
  const auto communicators = MakeThreadGroup(WorldSize(ranks));
  std::vector<RankMemory> reports(communicators.size());
  std::vector<std::string> errors(communicators.size());
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < communicators.size(); ++rank) {
      threads.emplace_back([&, rank] {
        try {
          at::set_num_threads(1);
          GptStep step(config, communicators[rank], options);
          step.Run(GptBatch::Random(config));
          reports[rank] = {.report = step.engine().Memory(), .parameters = step.parameter_count()};
        } catch (const std::exception& error) {
          communicators[rank]->Abort(InternalError(error.what()));
          errors[rank] = error.what();
        }
      });
    }
  }
  for (const std::string& error : errors) {
    if (!error.empty()) ThrowOnError(InternalError(error));
  }
  return reports;
}

}  // namespace ait::benchmarks

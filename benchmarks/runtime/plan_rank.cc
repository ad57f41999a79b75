// SPDX-License-Identifier: Apache-2.0
#include "plan_rank.h"

#include <ATen/Parallel.h>
#include <torch/utils.h>

#include <cstdio>

#include "ait/base/throw_on_error.h"
#include "ait/comm/world.h"
#include "ait/parallel/memory_setup.h"
#include "ait/parallel/module.h"
#include "ait/tensor/gloo.h"
#include "gpt_step.h"
#include "support/memory_watch.h"

namespace ait::benchmarks {
namespace {

using nlohmann::json;

constexpr int kSteps = 3;  // before the one that is measured

GptConfig ConfigOf(const PlanModel& model, std::int64_t micro_batch) {
  return {.layers = model.depth,
          .width = model.width,
          .heads = model.width / 32,
          .vocabulary = 512,
          .context = 128,
          .batch = micro_batch};
}

json ToJson(const ActionCost& cost) {
  return {{"held", cost.held_bytes}, {"peak", cost.peak_bytes}, {"seconds", cost.seconds}};
}

ActionCost CostFrom(const json& json) {
  return {.held_bytes = json["held"], .peak_bytes = json["peak"], .seconds = json["seconds"]};
}

json ToJson(const MemoryParts& parts) {
  return {{"states", parts.model_states()},
          {"buckets", parts.buckets},
          {"gathered", parts.gathered},
          {"activations", parts.activations + parts.working},
          {"total", parts.total()}};
}

}  // namespace

json ToJson(const StepProfile& profile) {
  json segments = json::array();
  for (const SegmentCost& segment : profile.segments) {
    json row = {{"name", segment.name}, {"keep", ToJson(segment.keep)}};
    if (segment.recompute) row["recompute"] = ToJson(*segment.recompute);
    segments.push_back(std::move(row));
  }
  return {{"micro_batch", profile.micro_batch},
          {"peak", profile.peak_bytes},
          {"seconds", profile.seconds},
          {"segments", std::move(segments)}};
}

StepProfile ProfileFrom(const json& json) {
  StepProfile profile{
      .micro_batch = json["micro_batch"], .peak_bytes = json["peak"], .seconds = json["seconds"]};
  for (const auto& row : json["segments"]) {
    SegmentCost& segment = profile.segments.emplace_back();
    segment.name = row["name"];
    segment.keep = CostFrom(row["keep"]);
    if (row.contains("recompute")) segment.recompute = CostFrom(row["recompute"]);
  }
  return profile;
}

int RunProfileRank(const PlanModel& model) {
  at::set_num_threads(1);
  auto world = ThrowOnError(World::FromEnvironment({.transport = Gloo()}));
  GptStep step(ConfigOf(model, 1), JoinSharedMemoryOf(*world, "profile"),
               {.precision = ThrowOnError(PrecisionNamed(model.precision))});
  MemoryPlanner planner(step.plan());
  for (const std::int64_t micro_batch : {2, 4}) {
    const GptBatch batch = GptBatch::Random(ConfigOf(model, micro_batch));
    step.Run(batch);
    const StepProfile profile = ThrowOnError(planner.Measure(
        [&] {
          step.Run(batch);
          return OkStatus();
        },
        micro_batch));
    if (world->rank() == Rank(0)) std::printf("%s\n", ToJson(profile).dump().c_str());
  }
  return 0;
}

int RunPlanRank(const PlanModel& model, int stage, std::int64_t micro_batch,
                const std::string& actions, std::int64_t activations) {
  at::set_num_threads(1);
  const GptConfig config = ConfigOf(model, micro_batch);
  const DataParallelOptions options{.zero_stage = static_cast<ZeroStage>(stage),
                                    .precision = ThrowOnError(PrecisionNamed(model.precision))};
  MemoryPrediction predicted;
  {  // before there is an engine
    Gpt gpt(config);
    const NamedTensors parameters = NamedParameters(*gpt);
    TrainingSetup setup =
        ThrowOnError(SetupOf(parameters, WithUnits(options, parameters), WorldSize(2)));
    predicted = ThrowOnError(PredictMemory(setup));
    predicted.rank.activations = activations;
  }
  auto world = ThrowOnError(World::FromEnvironment({.transport = Gloo()}));
  auto communicator = JoinSharedMemoryOf(*world, "plan");
  torch::manual_seed(1);
  const GptBatch batch = GptBatch::Random(config);
  const ResidentMiB before = ResidentMiB::Now();
  ResidentWatch watch;
  GptStep step(config, communicator, options);
  for (std::size_t i = 0; i < actions.size(); ++i) {
    if (actions[i] == 'r') step.plan().Set(StrCat("blocks.", i), SegmentAction::kRecompute);
  }
  for (int i = 0; i < kSteps; ++i) step.Run(batch);
  MemoryParts measured;
  const std::int64_t tensors = TensorMemory::PeakOf([&] { step.Run(batch); });
  measured = PartsOf(step.engine().Memory());
  measured.activations = tensors;
  const ResidentMiB peak = watch.Stop();
  std::printf("%s\n", json({{"rank", world->rank().value()},
                            {"predicted", ToJson(predicted.rank)},
                            {"measured", ToJson(measured)},
                            {"growth_mib", peak.own() - before.own()}})
                          .dump()
                          .c_str());
  ThrowOnError(world->communicator()->Barrier().Wait());  // the peer's pages are there until here
  return 0;
}

}  // namespace ait::benchmarks

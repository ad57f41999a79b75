// SPDX-License-Identifier: Apache-2.0
// What would make a run take less memory: the arithmetic of ait/activation/memory_model.h on what
// the engine says of itself.
#include <algorithm>
#include <utility>

#include "ait/comm/communicator.h"
#include "ait/parallel/memory_setup.h"
#include "runtime/memory_watch_internal.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::int64_t kGuessedSegments = 8;
// Stands for a micro-batch of unknown size: six halvings.
constexpr std::int64_t kUnknownMicroBatch = 64;

/// Segments that together hold `bytes`. What a recomputed one keeps, its inputs, and the time of
/// forward are those of a transformer: about a tenth, and a third of the micro-step.
std::vector<SegmentCost> GuessedSegments(std::int64_t bytes, double micro_step_seconds) {
  if (bytes <= 0) return {};
  const std::int64_t each = bytes / kGuessedSegments;
  const double forward = (micro_step_seconds > 0 ? micro_step_seconds : 1) / 3 / kGuessedSegments;
  const SegmentCost segment{
      .name = "segment",
      .keep = {.held_bytes = each, .peak_bytes = each},
      .recompute = ActionCost{.held_bytes = each / 10, .peak_bytes = each, .seconds = forward}};
  return std::vector<SegmentCost>(kGuessedSegments, segment);
}

/// Of several micro-batches or stages, the first, which is the best, says it all.
void KeepBestOfEachKind(std::vector<Remedy>& remedies, const TrainingSetup& now) {
  bool has_micro_batch = false;
  bool has_stage = false;
  std::erase_if(remedies, [&](const Remedy& remedy) {
    if (remedy.setup.micro_batch != now.micro_batch) return std::exchange(has_micro_batch, true);
    if (remedy.setup.zero_stage != now.zero_stage) return std::exchange(has_stage, true);
    return false;
  });
}

}  // namespace

OptimizerKind KindOf(const Optimizer& optimizer) {
  const std::string_view name = optimizer.name();
  if (name == "lion") return OptimizerKind::kLion;
  if (name == "adafactor") return OptimizerKind::kAdafactor;
  if (name == "muon") return OptimizerKind::kSgdMomentum;  // one fp32 number an element
  if (name == "sgd")
    return optimizer.state_names().empty() ? OptimizerKind::kSgd : OptimizerKind::kSgdMomentum;
  return OptimizerKind::kAdam;
}

StateFormat StateFormatOf(const Optimizer& optimizer) {
  const std::vector<std::string> names = optimizer.state_names();
  const bool is_blockwise =
      std::ranges::any_of(names, [](const std::string& name) { return name.ends_with("_absmax"); });
  return is_blockwise ? StateFormat::kBlockwise8bit : StateFormat::kFloat32;
}

std::vector<Remedy> RemediesOf(const DataParallel& engine, const MemoryWatchSetup& given,
                               std::int64_t activation_bytes, double step_seconds, Bytes missing) {
  const DataParallelOptions& options = engine.options();
  const Communicator& sharding =
      options.hybrid.shard != nullptr ? *options.hybrid.shard : *engine.communicator();
  const std::int64_t micro_batch = given.options->micro_batch;
  TrainingSetup setup{.parameters = CountsOf(engine.layout(), options.prefetch),
                      .bytes = BytesOf(options.precision),
                      .optimizer = given.optimizer,
                      .state = given.state,
                      .zero_stage = static_cast<int>(options.zero_stage),
                      .ranks = sharding.size().value(),
                      .prefetch = options.prefetch,
                      .bucket_cap = options.bucket_cap,
                      .offload = options.offload,
                      .segments = given.options->segments,
                      .micro_batch = micro_batch > 0 ? micro_batch : kUnknownMicroBatch,
                      .accumulate = given.micro_steps,
                      .step_seconds = step_seconds / given.micro_steps};
  // Units are not laid out below stage 3: no unit is smaller than its largest parameter.
  if (setup.parameters.largest_unit == 0 && setup.zero_stage < 3) {
    for (const ParameterInfo& info : engine.layout().parameters()) {
      setup.parameters.largest_unit = std::max(setup.parameters.largest_unit, info.count());
    }
  }
  if (options.reduce) {
    setup.gradients =
        *options.reduce == ReduceWhen::kOnce ? KeptGradients::kAll : KeptGradients::kReduced;
  }
  if (setup.segments.empty())
    setup.segments = GuessedSegments(activation_bytes, setup.step_seconds);
  const StatusOr<MemoryPrediction> now = PredictMemory(setup);
  if (!now.ok()) return {};
  std::vector<Remedy> remedies =
      SuggestRemedies(setup, Bytes(std::max<std::int64_t>(now->rank.total() - missing.value(), 0)));
  KeepBestOfEachKind(remedies, setup);
  for (Remedy& remedy : remedies) {
    if (micro_batch > 0 || remedy.setup.micro_batch == setup.micro_batch) continue;
    remedy.what = StrCat("a micro-batch of 1/", setup.micro_batch / remedy.setup.micro_batch,
                         " of the size, and accumulate = ", remedy.setup.accumulate);
  }
  return remedies;
}

}  // namespace ait::inline v0::internal

// SPDX-License-Identifier: Apache-2.0
// What to change where a run takes too much.
#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>

#include "activation/byte_text_internal.h"
#include "activation/memory_model_internal.h"
#include "ait/activation/memory_model.h"

namespace ait::inline v0 {
namespace {

// Measured on a host with two ranks (docs/performance.md): a step with each stage against plain.
constexpr double kStageFactors[] = {1.0, 1.01, 1.03, 1.09};

constexpr double kHalfFactor = 1.03;  // a step with micro-batches of half the size
constexpr std::int64_t kMostParts = 4096;

std::int64_t Scaled(std::int64_t bytes, double factor) {
  return static_cast<std::int64_t>(std::ceil(static_cast<double>(bytes) * factor));
}

TrainingSetup WithMicroBatch(TrainingSetup setup, std::int64_t micro_batch) {
  const double factor = static_cast<double>(micro_batch) / static_cast<double>(setup.micro_batch);
  const auto scale = [factor](ActionCost& cost) {
    cost.held_bytes = Scaled(cost.held_bytes, factor);
    cost.peak_bytes = Scaled(cost.peak_bytes, factor);
    cost.seconds *= factor;
  };
  for (SegmentCost& segment : setup.segments) {
    scale(segment.keep);
    if (segment.recompute) scale(*segment.recompute);
    if (segment.offload) scale(*segment.offload);
  }
  setup.accumulate *= setup.micro_batch / micro_batch;
  setup.step_seconds *= factor;
  setup.micro_batch = micro_batch;
  return setup;
}

/// A layout of the stages below the third has no units: then all is in units of an eighth, or of the
/// largest one if that is given. Returns whether it was so.
bool GuessUnits(ParameterCounts& counts) {
  const std::int64_t flat = counts.flat > 0 ? counts.flat : counts.elements;
  if (counts.gathered > 0 || (counts.largest_unit > 0 && counts.whole < flat)) return false;
  counts.whole = 0;
  counts.owned_in_units = counts.owned;
  counts.largest_unit = std::max(counts.largest_unit, (flat + 7) / 8);
  return true;
}

class Suggestions {
 public:
  Suggestions(const TrainingSetup& setup, std::int64_t budget, std::int64_t total)
      : setup_(setup), budget_(budget), total_(total) {}

  std::vector<Remedy> Take() && {
    Stages();
    Precision();
    States();
    Plan();
    MicroBatch();
    std::ranges::sort(remedies_, [](const Remedy& a, const Remedy& b) {
      if (a.fits != b.fits) return a.fits;
      if (a.fits && a.step_factor != b.step_factor) return a.step_factor < b.step_factor;
      return a.saves_bytes > b.saves_bytes;
    });
    return std::move(remedies_);
  }

 private:
  // Keeps a change that is allowed and saves something; returns whether it suffices.
  bool Add(std::string what, TrainingSetup changed, double factor, std::string cost) {
    const StatusOr<MemoryPrediction> prediction = PredictMemory(changed);
    if (!prediction.ok() || prediction->rank.total() >= total_) return false;
    const bool fits = prediction->rank.total() <= budget_;
    remedies_.push_back({.what = std::move(what),
                         .saves_bytes = total_ - prediction->rank.total(),
                         .step_factor = factor,
                         .cost = std::move(cost),
                         .fits = fits,
                         .setup = std::move(changed)});
    return fits;
  }

  void Stages() {
    if (setup_.ranks == 1) return;
    for (int stage = setup_.zero_stage + 1; stage <= 3; ++stage) {
      TrainingSetup changed = setup_;
      changed.zero_stage = stage;
      changed.gradients = KeptGradients::kByStage;
      const bool is_guessed = stage == 3 && GuessUnits(changed.parameters);
      const double factor = kStageFactors[stage] / kStageFactors[setup_.zero_stage];
      if (Add(StrCat("ZeRO stage ", stage, " instead of ", setup_.zero_stage), std::move(changed),
              factor,
              stage < 3    ? "no other numbers"
              : is_guessed ? "parameters are gathered twice a step; units are guessed"
                           : "parameters are gathered twice a step")) {
        return;
      }
    }
  }

  void Precision() {
    if (!setup_.bytes.is_bf16 || setup_.bytes.masters != 4) return;
    TrainingSetup changed = setup_;
    changed.bytes.masters = 2;
    Add("Masters::kRemainder instead of kFloat32", std::move(changed), 1.0, "the same bits");
  }

  void States() {
    const bool has_moments =
        setup_.optimizer != OptimizerKind::kAdafactor && setup_.optimizer != OptimizerKind::kSgd;
    if (!has_moments) return;
    if (setup_.state == StateFormat::kFloat32 && setup_.optimizer != OptimizerKind::kSgdMomentum) {
      TrainingSetup changed = setup_;
      changed.state = StateFormat::kBlockwise8bit;
      Add("8-bit optimizer states (StateFormat::kBlockwise8bit)", std::move(changed), 1.02,
          "moments are rounded: losses differ a little");
    }
    if (!setup_.offload.enabled()) {
      TrainingSetup changed = setup_;
      changed.offload = StateOffload{.directory = std::string(1, '.')};
      Add("optimizer states in a file (DataParallelOptions::offload)", std::move(changed), 1.3,
          "reads and writes the states once a step: a fast local disk");
      if (setup_.optimizer == OptimizerKind::kAdam) {
        changed = setup_;
        changed.optimizer = OptimizerKind::kAdafactor;
        Add("Adafactor instead of Adam", std::move(changed), 1.1,
            "another optimizer: learning rates must be found anew");
      }
    }
  }

  void Plan() {
    if (setup_.segments.empty()) return;
    const StatusOr<MemoryPrediction> now = PredictMemory(setup_);
    const MemoryParts& rank = now->rank;
    const std::int64_t others = rank.total() - rank.activations - rank.working - rank.slack;
    const auto room =
        static_cast<std::int64_t>(static_cast<double>(budget_ - others) / (1 + setup_.waste));
    StatusOr<SegmentSchedule> schedule = FastestWithin(setup_.segments, Bytes(room));
    if (!schedule.ok()) schedule = LeastMemory(setup_.segments);
    if (!schedule.ok()) return;
    TrainingSetup changed = setup_;
    changed.plan = schedule->actions;
    const auto count = [&](SegmentAction action) {
      return std::ranges::count(schedule->actions, action);
    };
    const double added = schedule->seconds - SecondsOf(setup_.segments, setup_.plan);
    const double step = setup_.step_seconds > 0 ? setup_.step_seconds : 1;
    const auto offloaded = count(SegmentAction::kOffload);
    Add(StrCat("activation checkpointing: recompute ", count(SegmentAction::kRecompute), " of ",
               setup_.segments.size(), " segments",
               offloaded > 0 ? StrCat(", offload ", offloaded) : std::string()),
        std::move(changed), std::max(1.0, 1 + added / step), "the same bits");
  }

  void MicroBatch() {
    if (setup_.segments.empty()) return;
    // Only whole parts leave the sums of a step as they are.
    for (std::int64_t parts = 2; parts <= std::min(setup_.micro_batch, kMostParts); ++parts) {
      if (setup_.micro_batch % parts != 0) continue;
      const std::int64_t size = setup_.micro_batch / parts;
      const double factor = std::pow(kHalfFactor, std::log2(static_cast<double>(parts)));
      if (Add(StrCat("micro-batch ", size, " instead of ", setup_.micro_batch, ", accumulating ",
                     setup_.accumulate * parts, " micro-steps"),
              WithMicroBatch(setup_, size), factor, "smaller matrix products")) {
        return;
      }
    }
  }

  const TrainingSetup& setup_;
  std::int64_t budget_, total_;
  std::vector<Remedy> remedies_;
};

}  // namespace

std::vector<Remedy> SuggestRemedies(const TrainingSetup& setup, Bytes budget) {
  const StatusOr<MemoryPrediction> now = PredictMemory(setup);
  if (!now.ok()) return {};
  return Suggestions(setup, budget.value(), now->rank.total()).Take();
}

StatusOr<std::vector<Remedy>> RemediesUntil(const TrainingSetup& setup, Bytes budget) {
  std::vector<Remedy> chosen;
  TrainingSetup current = setup;
  for (;;) {
    AIT_ASSIGN_OR_RETURN(const MemoryPrediction now, PredictMemory(current));
    if (now.rank.total() <= budget.value()) return chosen;
    std::vector<Remedy> remedies = SuggestRemedies(current, budget);
    if (remedies.empty()) {
      return ResourceExhaustedError(
          "a budget of ", internal::ByteText(budget.value()),
          " a rank is below the least that is possible, ", internal::ByteText(now.rank.total()),
          " (", now.rank.total(), " bytes), of which the largest part is ",
          internal::LargestPart(now.rank), "; use more ranks, or a smaller model");
    }
    // One that suffices is first; else the cheapest, so that dear ones come last.
    auto best = remedies.begin();
    if (!best->fits) {
      best = std::ranges::min_element(remedies, [](const Remedy& a, const Remedy& b) {
        return std::pair(a.step_factor, -a.saves_bytes) < std::pair(b.step_factor, -b.saves_bytes);
      });
    }
    current = best->setup;
    chosen.push_back(std::move(*best));
  }
}

}  // namespace ait::inline v0

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_ACTIVATION_PLANNER_H_
#define AIT_ACTIVATION_PLANNER_H_

// `MemoryPlanner`: measures one step, chooses what to keep, recompute or offload so that a budget is
// kept in the least time, and is held to what it predicted.
//
//   ActivationPlan plan;                                      // the model runs its segments through it
//   MemoryPlanner planner(plan);
//   const auto step = [&] { return TakeStep(model, plan, batch); };        // forward and backward
//   AIT_RETURN_IF_ERROR(step());                                           // warm
//   AIT_RETURN_IF_ERROR(planner.Measure(step).status());
//   AIT_RETURN_IF_ERROR(planner.Choose(MiB(300)).status());                // sets the plan
//   AIT_ASSIGN_OR_RETURN(const PlanOutcome outcome, planner.Check(step));
//   std::puts(outcome.Describe().c_str());                                 // predicted beside measured
//
// Bytes are those that libtorch's allocators hand out during the step, on whatever device, beyond
// what was live when it began: activations, gradients that are passed on, temporaries. Parameters,
// gradients and the optimizer's states are there before; `PredictMemory` has all together.
//
// The measured step keeps everything. For each segment it finds
//
//   held      what is live after its forward and was not before
//   freed     the part of it that recomputing gives back: storages that it has made and that only it
//             has saved, each counted once; not parameters, inputs and results
//   peak      the most while its forward or its backward runs, beyond what was held before it
//   seconds   until the last tensor was saved: what recomputing, which stops there, takes
//
// What lies between segments is kept always, and is counted the same way. Not seen are results that
// a recomputed segment keeps (`ActivationPlanOptions::keep`, `Keep`), which predictions take as given
// back, and what an offload policy has in flight and brings in ahead: leave room for both.
//
// **Thread-safety.** None; the thread that runs the model.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ait/activation/schedule.h"
#include "ait/activation/segments.h"
#include "ait/base/status.h"
#include "ait/base/types.h"

namespace ait::inline v0 {

struct StepProfile {
  /// In the order of forward; those that are not of the plan have a name in parentheses.
  std::vector<SegmentCost> segments;
  std::int64_t micro_batch = 1;
  std::int64_t peak_bytes = 0;  // measured, of all together
  double seconds = 0;           // of the step

  /// A table for people: a line for each segment.
  std::string Describe() const;
};

/// The profile of another micro-batch: bytes lie on a line through those of the two, so that what
/// does not grow with the batch, such as the gradient of a weight, does not. Seconds are proportional.
/// **Errors.** InvalidArgument: other segments, or equal micro-batches.
StatusOr<StepProfile> ProfileFor(std::int64_t micro_batch, const StepProfile& a,
                                 const StepProfile& b);

struct MemoryPlannerOptions {
  /// What an offloaded byte costs in time, which the caller measures or guesses, and which part of it
  /// stays in memory: 0 if it is moved away, 0.5 if it is compressed to a half. Without a policy in
  /// the plan nothing is offloaded.
  double offload_seconds_per_gib = 0.1;
  double offload_keeps = 0;
  /// Segments are recomputed only if that gives back at least this.
  Bytes least_freed = KiB(4);
  ScheduleOptions schedule = {};
};

struct PlanOutcome {
  std::int64_t predicted_bytes = 0;
  std::int64_t measured_bytes = 0;
  std::int64_t kept_bytes = 0;  // the peak of the measured step, in which all was kept
  double predicted_seconds = 0;
  double measured_seconds = 0;
  int recomputed = 0, offloaded = 0, segments = 0;

  /// (predicted − measured) / measured.
  double error() const;
  std::string Describe() const;
};

class MemoryPlanner {
 public:
  /// `plan` outlives the planner.
  explicit MemoryPlanner(ActivationPlan& plan, MemoryPlannerOptions options = {});

  /// Runs `step`, which takes one micro-step, forward and backward, and keeps everything. Take one
  /// before, so that gradients and states exist. Calls to the segments on other threads are not
  /// seen. **Errors.** Those of `step`; InvalidArgument: a segment ran twice, or none did.
  StatusOr<StepProfile> Measure(const std::function<Status()>& step, std::int64_t micro_batch = 1);

  /// Chooses for what was measured, or for another profile of the same model, and sets the plan.
  /// **Errors.** as `FastestWithin`: with a budget that is too small the least that is possible and
  /// the segment that sets it. FailedPrecondition: nothing was measured.
  StatusOr<SegmentSchedule> Choose(Bytes budget);
  StatusOr<SegmentSchedule> Choose(Bytes budget, const StepProfile& profile);

  /// Runs a step with the plan as it is; what was predicted for it, beside what it took.
  StatusOr<PlanOutcome> Check(const std::function<Status()>& step);

  const StepProfile& profile() const { return profile_; }
  /// The actions of the plan for the segments of `profile`, in their order.
  std::vector<SegmentAction> ActionsFor(const StepProfile& profile) const;

 private:
  ActivationPlan& plan_;
  MemoryPlannerOptions options_;
  StepProfile profile_;  // the one that was chosen for
};

}  // namespace ait::inline v0

#endif  // AIT_ACTIVATION_PLANNER_H_

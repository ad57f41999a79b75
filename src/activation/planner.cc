// SPDX-License-Identifier: Apache-2.0
#include "ait/activation/planner.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <utility>

#include "activation/byte_text_internal.h"
#include "activation/segment_recorder_internal.h"
#include "tensor/catch.h"

namespace ait::inline v0 {
namespace {

using Clock = std::chrono::steady_clock;
using internal::ByteText;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

std::string Format(const char* format, auto... values) {
  char text[160];
  std::snprintf(text, sizeof(text), format, values...);
  return text;
}

// A number of another micro-batch: on the line through two.
class Line {
 public:
  Line(std::int64_t micro_batch, const StepProfile& a, const StepProfile& b)
      : part_(static_cast<double>(micro_batch - a.micro_batch) /
              static_cast<double>(b.micro_batch - a.micro_batch)),
        first_(static_cast<double>(micro_batch) / static_cast<double>(a.micro_batch) / 2),
        second_(static_cast<double>(micro_batch) / static_cast<double>(b.micro_batch) / 2) {}

  // Times are noisy, and are taken as proportional.
  double Of(double a, double b) const { return a * first_ + b * second_; }
  std::int64_t Of(std::int64_t a, std::int64_t b) const {
    return a + std::llround(part_ * static_cast<double>(b - a));
  }
  ActionCost Of(const ActionCost& a, const ActionCost& b) const {
    return {.held_bytes = Of(a.held_bytes, b.held_bytes),
            .peak_bytes = std::max<std::int64_t>(0, Of(a.peak_bytes, b.peak_bytes)),
            .seconds = Of(a.seconds, b.seconds)};
  }
  std::optional<ActionCost> Of(const std::optional<ActionCost>& a,
                               const std::optional<ActionCost>& b) const {
    return a && b ? std::optional(Of(*a, *b)) : std::nullopt;
  }

 private:
  double part_, first_, second_;
};

}  // namespace

std::string StepProfile::Describe() const {
  std::string text =
      Format("micro-batch %lld, peak %s, %.1f ms\n", static_cast<long long>(micro_batch),
             ByteText(peak_bytes).c_str(), seconds * 1e3);
  text += "  segment                        held    recomputed          peak        ms\n";
  for (const SegmentCost& segment : segments) {
    text += Format("  %-22s %12s  %12s  %12s  %8.2f\n", segment.name.c_str(),
                   ByteText(segment.keep.held_bytes).c_str(),
                   segment.recompute ? ByteText(segment.recompute->held_bytes).c_str() : "-",
                   ByteText(segment.keep.peak_bytes).c_str(),
                   segment.recompute ? segment.recompute->seconds * 1e3 : 0.0);
  }
  return text;
}

StatusOr<StepProfile> ProfileFor(std::int64_t micro_batch, const StepProfile& a,
                                 const StepProfile& b) {
  if (a.micro_batch == b.micro_batch || micro_batch < 1) {
    return InvalidArgumentError("profiles of micro-batches ", a.micro_batch, " and ", b.micro_batch,
                                " do not tell what ", micro_batch,
                                " takes; measure two that differ");
  }
  if (a.segments.size() != b.segments.size()) {
    return InvalidArgumentError("the profiles have ", a.segments.size(), " and ", b.segments.size(),
                                " segments; measure the same model");
  }
  const Line line(micro_batch, a, b);
  StepProfile profile{.micro_batch = micro_batch,
                      .peak_bytes = line.Of(a.peak_bytes, b.peak_bytes),
                      .seconds = line.Of(a.seconds, b.seconds)};
  for (std::size_t i = 0; i < a.segments.size(); ++i) {
    const SegmentCost& first = a.segments[i];
    const SegmentCost& second = b.segments[i];
    if (first.name != second.name) {
      return InvalidArgumentError("segment ", i, " is ", first.name, " in one profile and ",
                                  second.name, " in the other; measure the same model");
    }
    profile.segments.push_back({.name = first.name,
                                .keep = line.Of(first.keep, second.keep),
                                .recompute = line.Of(first.recompute, second.recompute),
                                .offload = line.Of(first.offload, second.offload)});
  }
  return profile;
}

double PlanOutcome::error() const {
  return measured_bytes == 0 ? 0
                             : static_cast<double>(predicted_bytes - measured_bytes) /
                                   static_cast<double>(measured_bytes);
}

std::string PlanOutcome::Describe() const {
  std::string text =
      Format("%d of %d segments recomputed, %d offloaded\n", recomputed, segments, offloaded);
  text += "              predicted      measured     error      all kept\n";
  text += Format("  peak     %12s  %12s  %+7.1f %%  %12s\n", ByteText(predicted_bytes).c_str(),
                 ByteText(measured_bytes).c_str(), 100 * error(), ByteText(kept_bytes).c_str());
  text +=
      Format("  step     %9.1f ms  %9.1f ms\n", predicted_seconds * 1e3, measured_seconds * 1e3);
  return text;
}

MemoryPlanner::MemoryPlanner(ActivationPlan& plan, MemoryPlannerOptions options)
    : plan_(plan), options_(options) {}

StatusOr<StepProfile> MemoryPlanner::Measure(const std::function<Status()>& step,
                                             std::int64_t micro_batch) {
  AIT_RETURN_IF_ERROR(SavedTensorScope::Available());
  const auto recorder = std::make_shared<internal::SegmentRecorder>();
  plan_.recorder_ = recorder;
  const Status done = internal::CatchAsStatus([&] {
    const SavedTensorScope scope(recorder->Watch(-1));
    return step();
  });
  plan_.recorder_ = nullptr;
  AIT_RETURN_IF_ERROR(done);
  AIT_ASSIGN_OR_RETURN(profile_, recorder->Finish(options_, plan_.options()));
  profile_.micro_batch = micro_batch;
  return profile_;
}

StatusOr<SegmentSchedule> MemoryPlanner::Choose(Bytes budget) { return Choose(budget, profile_); }

StatusOr<SegmentSchedule> MemoryPlanner::Choose(Bytes budget, const StepProfile& profile) {
  if (profile.segments.empty()) {
    return FailedPreconditionError("there is no profile to choose by; call Measure first");
  }
  AIT_ASSIGN_OR_RETURN(SegmentSchedule schedule,
                       FastestWithin(profile.segments, budget, options_.schedule));
  for (std::size_t i = 0; i < schedule.actions.size(); ++i) {
    if (!profile.segments[i].name.starts_with('(')) {
      plan_.Set(profile.segments[i].name, schedule.actions[i]);
    }
  }
  if (&profile != &profile_) profile_ = profile;
  return schedule;
}

std::vector<SegmentAction> MemoryPlanner::ActionsFor(const StepProfile& profile) const {
  std::vector<SegmentAction> actions;
  for (const SegmentCost& segment : profile.segments) {
    const SegmentAction action = plan_.action(segment.name);
    actions.push_back(segment.allows(action) ? action : SegmentAction::kKeep);
  }
  return actions;
}

StatusOr<PlanOutcome> MemoryPlanner::Check(const std::function<Status()>& step) {
  if (profile_.segments.empty()) {
    return FailedPreconditionError("there is no prediction to check; call Measure first");
  }
  const std::vector<SegmentAction> actions = ActionsFor(profile_);
  const auto count = [&](SegmentAction action) {
    return static_cast<int>(std::ranges::count(actions, action));
  };
  PlanOutcome outcome{
      .predicted_bytes = PeakOf(profile_.segments, actions).bytes,
      .kept_bytes = profile_.peak_bytes,
      .predicted_seconds = profile_.seconds + SecondsOf(profile_.segments, actions),
      .recomputed = count(SegmentAction::kRecompute),
      .offloaded = count(SegmentAction::kOffload),
      .segments = static_cast<int>(std::ranges::count_if(
          profile_.segments, [](const auto& segment) { return !segment.name.starts_with('('); }))};
  const Clock::time_point begin = Clock::now();
  internal::LiveBytes live;
  AIT_RETURN_IF_ERROR(internal::CatchAsStatus(step));
  outcome.measured_bytes = live.TakePeak();
  outcome.measured_seconds = SecondsSince(begin);
  return outcome;
}

}  // namespace ait::inline v0

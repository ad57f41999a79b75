// SPDX-License-Identifier: Apache-2.0
// The decision of a step: one small all-gather, after which all ranks know the same.
#include <optional>

#include "parallel/data_parallel_impl.h"

namespace ait::inline v0 {

// The norms that the squares of all gradients do not say, from the slices of this rank.
std::vector<NormSum> DataParallel::Impl::NormsOf(const internal::NormPlan& plan) const {
  internal::OwnedNorms norms(plan);
  // Of replicas of a slice, the first has its norms.
  if (replicate_ != nullptr && replicate_->rank() != Rank(0)) return norms.sums();
  for (int b = 0; b < bucket_count(); ++b) {
    norms.AddSlice(layout, b, gradients_->Owned(b), shard_->rank(), executor_);
  }
  return norms.sums();
}

StatusOr<GradientSummary> DataParallel::Impl::Decide(const StepInput& input) {
  const Status norm_is_good = input.norm.Validate();
  const std::optional<internal::NormPlan> plan =
      norm_is_good.ok() ? internal::MakeNormPlan(layout, input.norm, groups_) : std::nullopt;
  const internal::DecisionLine line =
      internal::MakeDecisionLine(input, squares_, plan ? NormsOf(*plan) : std::vector<NormSum>());
  std::vector<std::int64_t> lines = line;
  if (communicator->size().value() > 1) {
    lines.resize(line.size() * static_cast<std::size_t>(communicator->size().value()));
    const Time begin = SystemClock().now();
    const Status gathered =
        communicator->AllGather(View(line), View(lines), Labelled("decision of the step")).Wait();
    counters.exposed += SystemClock().now() - begin;
    ++counters.collectives;
    counters.communicated_bytes += View(line).bytes().value();
    if (!gathered.ok()) return End(gathered, "deciding the step");
  }
  state_ = State::kUndecided;
  AIT_RETURN_IF_ERROR(norm_is_good);
  AIT_ASSIGN_OR_RETURN(GradientSummary summary, internal::Summarize(layout, lines, input.loss_scale,
                                                                    plan ? &*plan : nullptr));
  state_ = State::kDecided;
  return summary;
}

}  // namespace ait::inline v0

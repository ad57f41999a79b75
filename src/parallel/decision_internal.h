// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_DECISION_INTERNAL_H_
#define AIT_PARALLEL_DECISION_INTERNAL_H_

// The one small reduction of a step: every rank tells what it has counted and the squares of the
// slices that it owns; all get the same summary and so take the same branch.

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ait/base/status.h"
#include "ait/comm/buffer.h"
#include "ait/optim/executor.h"
#include "ait/optim/norm.h"
#include "ait/optim/parameter_groups.h"
#include "ait/parallel/data_parallel.h"
#include "ait/parallel/flat_layout.h"

namespace ait::inline v0::internal {

/// The squares of one rank's part of the gradients, and the first parameter that has one not
/// finite.
struct OwnedSquares {
  SumOfSquares sum;
  int not_finite = -1;

  /// Adds the slice of bucket `b` that `rank` owns: `slice` is just these elements, wherever they
  /// are (a part of the flat buffer, or a shard). Floating-point types only; fp64 is rounded to
  /// fp32. `known` are its squares, where somebody has computed them.
  void AddSlice(const FlatLayout& layout, int b, const Buffer& slice, Rank rank,
                const Executor& executor, const SumOfSquares* known = nullptr);
  /// The same from the whole flat buffer of the bucket's group.
  void Add(const FlatLayout& layout, int b, const Buffer& gradients, Rank rank,
           const Executor& executor);
};

/// Which parameters count into which norm, where the squares of all do not say it.
struct NormPlan {
  double p = 2;
  int norms = 1;  // one, or one for each parameter group and one for those in none
  bool is_by_group = false;
  std::vector<int> norm_of;  // by parameter; -1: it does not count on this rank
};

/// Nullopt if the squares of all parameters are what is asked for.
std::optional<NormPlan> MakeNormPlan(const FlatLayout& layout, const NormOptions& options,
                                     const ParameterGroups& groups);

/// The norms of one rank's part of the gradients: slices of buckets in their order, parameters of a
/// slice in theirs.
class OwnedNorms {
 public:
  explicit OwnedNorms(const NormPlan& plan)
      : plan_(&plan), sums_(static_cast<std::size_t>(plan.norms), NormSum(plan.p)) {}

  /// As `OwnedSquares::AddSlice`. The plan must live on.
  void AddSlice(const FlatLayout& layout, int b, const Buffer& slice, Rank rank,
                const Executor& executor);

  const std::vector<NormSum>& sums() const { return sums_; }

 private:
  const NormPlan* plan_;
  std::vector<NormSum> sums_;
};

/// What a rank brings, as it travels: a number of words that the norms fix.
using DecisionLine = std::vector<std::int64_t>;
DecisionLine MakeDecisionLine(const StepInput& input, OwnedSquares squares,
                              std::span<const NormSum> norms = {});

/// The summary that follows from the lines of all ranks, one after the other.
/// **Errors.** InvalidArgument, the same on every rank: a negative count, a total of 0,
/// `must_agree` that differs, a loss scale that is not finite and positive.
StatusOr<GradientSummary> Summarize(const FlatLayout& layout, std::span<const std::int64_t> lines,
                                    double loss_scale = 1, const NormPlan* plan = nullptr);

}  // namespace ait::inline v0::internal

#endif  // AIT_PARALLEL_DECISION_INTERNAL_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_ACTIVATION_POLICIES_H_
#define AIT_ACTIVATION_POLICIES_H_

// Which segments of a model are recomputed, kept or offloaded, said by their names: for who knows
// what he wants, where MemoryPlanner (planner.h) measures and chooses. Both give an ActivationPlan.
//
//   auto plan = ThrowOnError(CheckpointPolicy::EveryKth(2).MakePlan(names));
//   auto plan = ThrowOnError(
//       CheckpointPolicy::All().KeepResults(MatrixProducts()).MakePlan(names));        // keep.h
//   auto policy = CheckpointPolicy()
//                     .Add({.pattern = "blocks.*", .action = SegmentAction::kRecompute})
//                     .Add({.pattern = "blocks.*", .action = SegmentAction::kOffload, .every = 3})
//                     .Add({.pattern = "blocks.11", .action = SegmentAction::kKeep});
//   AIT_ASSIGN_OR_RETURN(policy, CheckpointPolicy::Parse(option));      // of a command line
//
// Rules are tried in order and the last one that matches a segment counts; without one it keeps.
//
// Two that are often asked for: *products kept, attention recomputed* is the second above, for
// attention is none of MatrixProducts; *the last blocks kept*, whose backward comes first and so
// has no use of recomputing, are a rule with kKeep.
//
// **Thread-safety.** As of an int.

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ait/activation/schedule.h"
#include "ait/activation/segments.h"
#include "ait/base/status.h"

namespace ait::inline v0 {

struct SegmentRule {
  /// `*` is any text, `?` one character: MatchesPattern of ait/optim/parameter_groups.h.
  std::string pattern = "*";
  SegmentAction action = SegmentAction::kRecompute;
  /// Of the segments that match, in order, the first and each this many after it.
  int every = 1;
};

class CheckpointPolicy {
 public:
  /// Keeps everything.
  CheckpointPolicy() = default;
  static CheckpointPolicy None() { return {}; }
  /// Recomputes all segments, one in `k`, or those whose names match.
  static CheckpointPolicy All() { return EveryKth(1); }
  static CheckpointPolicy EveryKth(int k);
  static CheckpointPolicy Matching(std::string pattern);

  /// From text: `all`, `none`, or rules with commas between them, PATTERN[/EVERY]=ACTION with the
  /// actions keep, recompute and offload; and anywhere `+products`, `+attention`, whose results
  /// segments that are recomputed keep. "blocks.*=recompute,blocks.*/3=offload,+products".
  /// **Errors.** InvalidArgument: names the word and what is allowed.
  static StatusOr<CheckpointPolicy> Parse(std::string_view text);

  CheckpointPolicy& Add(SegmentRule rule);
  /// Segments that are recomputed keep the results of these operators (keep.h), in addition to
  /// those named before.
  CheckpointPolicy& KeepResults(std::span<const std::string> operators);
  CheckpointPolicy& KeepResults(const std::vector<std::string>& operators);

  const std::vector<SegmentRule>& rules() const { return rules_; }
  const std::vector<std::string>& kept_results() const { return kept_results_; }

  /// One action for each name. **Errors.** InvalidArgument: a rule with `every` below 1; NotFound:
  /// a rule that no name matches, with the names that there are.
  StatusOr<std::vector<SegmentAction>> ActionsFor(std::span<const std::string> names) const;

  /// A plan with these actions; kept results are added to its options.
  StatusOr<std::unique_ptr<ActivationPlan>> MakePlan(std::span<const std::string> names,
                                                     ActivationPlanOptions options = {}) const;

 private:
  std::vector<SegmentRule> rules_;
  std::vector<std::string> kept_results_;
};

}  // namespace ait::inline v0

#endif  // AIT_ACTIVATION_POLICIES_H_

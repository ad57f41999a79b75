// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_PLAN_STAGE_INTERNAL_H_
#define AIT_DATA_PLAN_STAGE_INTERNAL_H_

// A stage of a plan: the order of its epochs, before bucketing and packing.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "ait/base/status.h"
#include "ait/data/plan/data_plan.h"
#include "data/plan/mix_pattern_internal.h"
#include "data/plan/pool_internal.h"

namespace ait::inline v0 {
namespace internal {

class Stage {
 public:
  /// Where a source of a mixture stands at the end of a stage, for the next stage to go on.
  struct Standing {
    std::uint64_t selection = 0;
    std::int64_t passes = 0;  // that were begun before the draws below are counted
    std::int64_t draws = 0;
    std::int64_t size = 1;
  };
  using Standings = std::map<std::int32_t, Standing>;

  /// The stage that `options` describes for epochs from its first to before `end_epoch` (int64 max:
  /// to the end). `sources` outlive it; `standings` become those at its end.
  static StatusOr<std::unique_ptr<Stage>> Create(const PlanStage& options, std::int64_t end_epoch,
                                                 const std::vector<PlanSource>& sources,
                                                 const PoolOrder& order, Standings& standings);

  std::int64_t first_epoch() const { return first_epoch_; }
  std::int64_t epoch_size() const { return epoch_size_; }
  bool is_mixture() const { return pattern_.has_value(); }
  std::uint64_t digest() const { return digest_; }

  /// What takes part of a source; nullptr: nothing.
  const Selection* SelectionOf(std::int32_t source) const;
  SourceItem At(std::int64_t epoch, std::int64_t position) const;
  /// The same, faster for neighbours. `memos` begin empty and are of this stage.
  SourceItem At(std::int64_t epoch, std::int64_t position, std::vector<Pool::Memo>& memos) const;

  /// For each source: how far it is before `position` of `epoch`.
  std::vector<SourceProgress> Progress(const std::vector<PlanSource>& sources, std::int64_t epoch,
                                       std::int64_t position) const;

  /// Appends the blocks that positions `begin` to before `end` of an epoch are taken from.
  void AppendBlocks(std::int64_t epoch, std::int64_t begin, std::int64_t end,
                    std::vector<PlannedBlock>& blocks) const;

 private:
  // A source of the mixture; or all sources together, if it is none.
  struct Member {
    std::unique_ptr<Pool> pool;
    std::int64_t first_pass = 0;       // at the first epoch
    std::int64_t first_draw = 0;       // draws of that pass that are behind
    std::int64_t draws_per_epoch = 0;  // if the pattern begins anew with each epoch
  };

  Status SetUpTogether(const PlanStage& options, const std::vector<PlanSource>& sources,
                       const PoolOrder& order, const std::vector<Selection>& selections);
  Status SetUpMixture(const PlanStage& options, const std::vector<PlanSource>& sources,
                      const PoolOrder& order, const std::vector<Selection>& selections);
  Status SetMixtureSize(const PlanStage& options);
  Status TakeOver(Standings& standings, std::int64_t end_epoch);
  // Draws of a member in this stage before `position` of an epoch.
  std::int64_t DrawsBefore(std::size_t member, std::int64_t epoch, std::int64_t position) const;
  // The pool that a position is taken from, and where in it.
  struct Draw {
    std::size_t member;
    std::int64_t pass;
    std::int64_t position;
  };
  Draw DrawAt(std::int64_t epoch, std::int64_t position) const;
  std::int64_t EpochsIn(std::int64_t epoch) const { return epoch - first_epoch_; }

  std::int64_t first_epoch_ = 0;
  std::int64_t epoch_size_ = 0;
  bool restarts_ = false;  // whether the pattern begins anew with each epoch
  std::vector<Member> members_;
  std::optional<MixPattern> pattern_;
  std::uint64_t digest_ = 0;
};

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_PLAN_STAGE_INTERNAL_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_PLAN_POOL_INTERNAL_H_
#define AIT_DATA_PLAN_POOL_INTERNAL_H_

// One or several sources in one order: every item of the pool once per pass.
//
// The items of a pool are counted source by source. Of a source with m selected samples that comes
// r·m times, items 0 … floor(r)·m - 1 are the samples again and again, and the rest walks on from
// pass to pass, so that over the passes all come equally often.

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "ait/data/order.h"
#include "ait/data/plan/plan_options.h"
#include "data/plan/block_order_internal.h"
#include "data/plan/recent_internal.h"
#include "data/plan/selection_internal.h"

namespace ait::inline v0 {
namespace internal {

struct SourceItem {
  std::int32_t source = 0;
  std::int64_t id = 0;
};

/// The items of one source in a pool.
struct Segment {
  std::int32_t source = 0;
  Selection selection;
  std::int64_t size = 0;   // items
  std::int64_t begin = 0;  // set by the pool: first item
  std::int64_t whole = 0;  // set by the pool: items that are whole copies
};

struct PoolOrder {
  SampleOrder order = SampleOrder::kShuffled;
  std::int64_t window_blocks = 16;
  std::uint64_t seed = 0;
};

class Pool {
 public:
  /// `sources` outlive the pool.
  Pool(std::vector<Segment> segments, const std::vector<PlanSource>& sources, PoolOrder order);
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  std::int64_t size() const { return size_; }
  const std::vector<Segment>& segments() const { return segments_; }

  /// The item at a position of a pass.
  SourceItem At(std::int64_t pass, std::int64_t position) const;

  /// Items of a segment at positions before `position`; nothing where only counting would tell.
  std::optional<std::int64_t> CountBefore(const Segment& segment, std::int64_t pass,
                                          std::int64_t position) const;

  struct BlockUse {
    std::int32_t source;
    std::int64_t block;
    std::int64_t begin;  // positions of the pass
    std::int64_t end;
  };
  /// Appends the blocks that positions `begin` to before `end` of a pass are taken from.
  void AppendBlocks(std::int64_t pass, std::int64_t begin, std::int64_t end,
                    std::vector<BlockUse>& uses) const;

 private:
  std::size_t SegmentOf(std::int64_t item) const;
  SourceItem ItemAt(std::int64_t pass, std::int64_t item) const;
  std::shared_ptr<const BlockOrder> Blocks(std::int64_t pass) const;
  void MakeChunks();
  template <typename Visit>
  void VisitRuns(const Segment& segment, std::int64_t pass, std::int64_t begin, std::int64_t end,
                 Visit visit) const;
  template <typename Positions>
  void AppendItems(std::int64_t pass, std::int64_t begin, std::int64_t end, Positions positions,
                   std::vector<BlockUse>& uses) const;

  std::vector<Segment> segments_;
  const std::vector<PlanSource>& sources_;
  const PoolOrder order_;
  std::int64_t size_ = 0;
  std::vector<std::int64_t> chunk_begins_;  // of kBlockShuffled: first items of its blocks, and end
  mutable Recent<std::int64_t, BlockOrder> recent_{3};
};

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_PLAN_POOL_INTERNAL_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_PLAN_BLOCK_ORDER_INTERNAL_H_
#define AIT_DATA_PLAN_BLOCK_ORDER_INTERNAL_H_

// The shuffle by blocks of one pass: the blocks in a new order, cut into windows of a few of them,
// and the items of each window in a new order.

#include <cstdint>
#include <vector>

#include "ait/data/order.h"

namespace ait::inline v0 {
namespace internal {

class BlockOrder {
 public:
  /// Block b has the items begins[b] to before begins[b + 1]; `begins` outlives this.
  BlockOrder(const std::vector<std::int64_t>& begins, std::int64_t window_blocks,
             std::uint64_t seed, std::int64_t pass);

  /// The item at `position`.
  std::int64_t operator()(std::int64_t position) const;

  std::int64_t window_count() const { return static_cast<std::int64_t>(window_begins_.size()) - 1; }
  /// The window that `position` lies in.
  std::int64_t WindowOf(std::int64_t position) const;
  /// First position of a window, and of the one after the last, the end.
  std::int64_t window_begin(std::int64_t window) const {
    return window_begins_[static_cast<std::size_t>(window)];
  }
  /// Calls `visit(block)` for the blocks of a window.
  template <typename Visit>
  void VisitBlocks(std::int64_t window, Visit visit) const {
    const std::int64_t end = BlocksEnd(window);
    for (std::int64_t k = window * window_blocks_; k < end; ++k) {
      visit(std::int64_t{block_[static_cast<std::size_t>(k)]});
    }
  }

 private:
  std::int64_t BlocksEnd(std::int64_t window) const;

  const std::vector<std::int64_t>& begins_;
  const std::int64_t window_blocks_;
  const std::uint64_t seed_;
  const std::int64_t pass_;
  std::vector<std::int32_t> block_;          // the block at each place
  std::vector<std::int64_t> place_begins_;   // the first position of each place
  std::vector<std::int64_t> window_begins_;  // of each window, and the end
  double windows_per_position_ = 0;          // for a first guess only
};

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_PLAN_BLOCK_ORDER_INTERNAL_H_

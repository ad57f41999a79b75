// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "data/plan/block_order_internal.h"
#include "data/plan/roles_internal.h"

namespace ait::inline v0 {
namespace internal {

BlockOrder::BlockOrder(const std::vector<std::int64_t>& begins, std::int64_t window_blocks,
                       std::uint64_t seed, std::int64_t pass)
    : begins_(begins), window_blocks_(window_blocks), seed_(seed), pass_(pass) {
  const auto count = static_cast<std::int64_t>(begins.size()) - 1;
  const Permutation order(count, SeedOf(seed, SeedRole::kBlocks, 0), pass);
  block_.reserve(static_cast<std::size_t>(count));
  place_begins_.reserve(static_cast<std::size_t>(count));
  std::int64_t position = 0;
  for (std::int64_t k = 0; k < count; ++k) {
    if (k % window_blocks == 0) window_begins_.push_back(position);
    const auto block = static_cast<std::size_t>(order(k));
    block_.push_back(static_cast<std::int32_t>(block));
    place_begins_.push_back(position);
    position += begins[block + 1] - begins[block];
  }
  window_begins_.push_back(position);
  windows_per_position_ = static_cast<double>(window_count()) / static_cast<double>(position);
}

std::int64_t BlockOrder::BlocksEnd(std::int64_t window) const {
  return std::min((window + 1) * window_blocks_, static_cast<std::int64_t>(block_.size()));
}

std::int64_t BlockOrder::WindowOf(std::int64_t position) const {
  // Blocks are mostly of one size, so the guess is mostly right.
  std::int64_t window = std::clamp<std::int64_t>(
      static_cast<std::int64_t>(static_cast<double>(position) * windows_per_position_), 0,
      window_count() - 1);
  for (int step = 0; step < 4; ++step) {
    if (position < window_begin(window)) {
      --window;
    } else if (position >= window_begin(window + 1)) {
      ++window;
    } else {
      return window;
    }
  }
  return std::upper_bound(window_begins_.begin(), window_begins_.end(), position) -
         window_begins_.begin() - 1;
}

std::int64_t BlockOrder::operator()(std::int64_t position) const {
  const std::int64_t window = WindowOf(position);
  const std::int64_t begin = window_begin(window);
  const Permutation order(window_begin(window + 1) - begin,
                          SeedOf(seed_, SeedRole::kWindow, window), pass_);
  const std::int64_t at = begin + order(position - begin);
  const auto first = place_begins_.begin() + window * window_blocks_;
  const auto last = place_begins_.begin() + BlocksEnd(window);
  const std::int64_t place = std::upper_bound(first, last, at) - place_begins_.begin() - 1;
  const auto k = static_cast<std::size_t>(place);
  return begins_[static_cast<std::size_t>(block_[k])] + at - place_begins_[k];
}

}  // namespace internal
}  // namespace ait::inline v0

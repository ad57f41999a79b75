// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "data/plan/block_order_internal.h"
#include "data/plan/roles_internal.h"

namespace ait::inline v0 {
namespace internal {

BlockOrder::BlockOrder(const std::vector<std::int64_t>& begins, std::int64_t window_blocks,
                       std::uint64_t seed, std::int64_t pass)
    : window_blocks_(window_blocks),
      seed_(seed),
      pass_(pass),
      count_(static_cast<std::int64_t>(begins.size()) - 1) {
  const Permutation order(count_, SeedOf(seed, SeedRole::kBlocks, 0), pass);
  places_.reserve(begins.size());
  std::int64_t position = 0;
  for (std::int64_t k = 0; k < count_; ++k) {
    if (k % window_blocks == 0) window_begins_.push_back(position);
    const auto block = static_cast<std::size_t>(order(k));
    places_.push_back({position, begins[block]});
    position += begins[block + 1] - begins[block];
  }
  places_.push_back({position, 0});
  window_begins_.push_back(position);
  windows_per_position_ = static_cast<double>(window_count()) / static_cast<double>(position);
}

std::int64_t BlockOrder::BlocksEnd(std::int64_t window) const {
  return std::min((window + 1) * window_blocks_, count_);
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

std::int64_t BlockOrder::At(std::int64_t position, WindowOrder& window) const {
  if (position < window.begin || position >= window.end) {
    window.window = WindowOf(position);
    window.begin = window_begin(window.window);
    window.end = window_begin(window.window + 1);
    window.order.emplace(window.end - window.begin, SeedOf(seed_, SeedRole::kWindow, window.window),
                         pass_);
  }
  const std::int64_t at = window.begin + (*window.order)(position - window.begin);
  // The last place that begins at `at` or before; halved without branches, which would be guessed
  // wrong half of the time.
  std::int64_t place = window.window * window_blocks_;
  for (std::int64_t count = BlocksEnd(window.window) - place; count > 1;) {
    const std::int64_t half = count / 2;
    place += places_[static_cast<std::size_t>(place + half)].begin <= at ? half : 0;
    count -= half;
  }
  const Place& found = places_[static_cast<std::size_t>(place)];
  return found.item + at - found.begin;
}

}  // namespace internal
}  // namespace ait::inline v0

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_BASE_SHARD_H_
#define AIT_BASE_SHARD_H_

// Which part of a common whole is ours: one of `size` equal parts.
//
// `World::shard()` returns the part of this process; a dataset takes it as an option, so that the
// two components do not know each other:
//
//   auto data = TokenDataset::Open("corpus", {.sequence_length = 256, .shard = world->shard()});

#include "ait/base/types.h"

namespace ait::inline v0 {

/// Part `rank` of `size` parts. The default is the whole.
struct Shard {
  Rank rank = Rank(0);            // 0 ≤ rank < size
  WorldSize size = WorldSize(1);  // ≥ 1

  constexpr bool operator==(const Shard&) const = default;
  /// True if 0 ≤ rank < size.
  constexpr bool is_valid() const { return rank.value() >= 0 && rank.value() < size.value(); }
};

}  // namespace ait::inline v0

#endif  // AIT_BASE_SHARD_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_PLAN_PART_OF_INTERNAL_H_
#define AIT_DATA_PLAN_PART_OF_INTERNAL_H_

// Which rows of a batch are those of a rank.

#include <algorithm>
#include <cstdint>

#include "ait/base/shard.h"

namespace ait::inline v0 {
namespace internal {

/// The rows of one rank within a batch.
struct RowRange {
  std::int64_t begin;
  std::int64_t end;
};

/// Splits `rows` into contiguous parts that differ by at most one. Which ranks get one more goes
/// round with the position of the batch in the whole run, so that the totals of the ranks do not
/// drift apart.
inline RowRange PartOf(const Shard& shard, std::int64_t rows, std::int64_t position_mod_size) {
  const std::int64_t size = shard.size.value();
  const std::int64_t rank = shard.rank.value();
  const std::int64_t base = rows / size;
  const std::int64_t extra = rows % size;
  // Ranks position, position+1, … position+extra-1 (mod size) get one more; count those below `r`.
  const auto extra_below = [&](std::int64_t r) {
    const std::int64_t last = position_mod_size + extra;
    const std::int64_t direct = std::clamp<std::int64_t>(r - position_mod_size, 0,
                                                         std::min(last, size) - position_mod_size);
    const std::int64_t wrapped =
        std::clamp<std::int64_t>(r, 0, std::max<std::int64_t>(last - size, 0));
    return direct + wrapped;
  };
  return {rank * base + extra_below(rank), (rank + 1) * base + extra_below(rank + 1)};
}

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_PLAN_PART_OF_INTERNAL_H_

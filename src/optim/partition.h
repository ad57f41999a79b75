// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_PARTITION_H_
#define AIT_OPTIM_PARTITION_H_

// The static partition of a range over the parts of an Executor.

#include <algorithm>
#include <cstdint>

#include "ait/base/types.h"
#include "ait/optim/executor.h"
#include "ait/optim/parameter_layout.h"

namespace ait::inline v0::internal {

inline constexpr std::int64_t kPartAlignment =
    64;  // elements: a block of the norm, four cache lines
inline constexpr std::int64_t kLeastPartElements = 8192;  // less is not worth a thread

/// Part `part` of `parts` of `range`; inner boundaries are at multiples of 64 elements.
inline ElementRange PartOf(ElementRange range, int part, int parts) {
  const std::int64_t base = range.begin - range.begin % kPartAlignment;
  const std::int64_t step = RoundUp((range.end - base + parts - 1) / parts, kPartAlignment);
  const std::int64_t begin = std::min(base + part * step, range.end);
  return {std::max(begin, range.begin), std::min(begin + step, range.end)};
}

/// Calls `body` with the parts of `range`, at most one per thread, and returns when all are done.
template <typename Body>
void ForEachPart(const Executor& executor, ElementRange range, const Body& body) {
  const auto parts = static_cast<int>(std::min<std::int64_t>(
      executor.threads, (range.size() + kLeastPartElements - 1) / kLeastPartElements));
  if (parts <= 1) return body(range);
  executor.run(parts, [&](int part) { body(PartOf(range, part, parts)); });
}

}  // namespace ait::inline v0::internal

#endif  // AIT_OPTIM_PARTITION_H_

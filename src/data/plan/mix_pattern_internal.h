// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_PLAN_MIX_PATTERN_INTERNAL_H_
#define AIT_DATA_PLAN_MIX_PATTERN_INTERNAL_H_

// The order in which the sources of a mixture take turns: periodic, of exact ratios, and as even
// as can be. At every place p a source of weight w of W in all has had p·w/W turns, give or take
// less than one.

#include <cstdint>
#include <vector>

#include "ait/base/status.h"

namespace ait::inline v0 {
namespace internal {

class MixPattern {
 public:
  static constexpr std::int64_t kMaxPeriod = std::int64_t{1} << 20;

  /// One weight ≥ 1 for each source. **Errors.** InvalidArgument: the weights, without their common
  /// divisor, add up to more than kMaxPeriod.
  static StatusOr<MixPattern> Create(std::vector<std::int64_t> weights);

  struct Turn {
    std::int32_t source;
    std::int64_t number;  // how many turns the source has had before
  };
  Turn At(std::int64_t place) const {
    const std::int64_t period = place / this->period();
    const Entry& entry = entries_[static_cast<std::size_t>(place - period * this->period())];
    return {entry.source, period * weights_[static_cast<std::size_t>(entry.source)] + entry.before};
  }

  std::int64_t period() const { return static_cast<std::int64_t>(entries_.size()); }
  /// Turns of `source` before `place`.
  std::int64_t CountBefore(std::size_t source, std::int64_t place) const;
  /// The place of a turn of `source`. int64 max if that is too far.
  std::int64_t PlaceOf(std::size_t source, std::int64_t number) const;

 private:
  struct Entry {
    std::int32_t source;
    std::int32_t before;  // turns of the source before this one in the period
  };
  std::vector<std::int64_t> weights_;
  std::vector<Entry> entries_;                     // one period
  std::vector<std::vector<std::int32_t>> places_;  // of every source in the period
};

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_PLAN_MIX_PATTERN_INTERNAL_H_

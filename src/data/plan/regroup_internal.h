// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_PLAN_REGROUP_INTERNAL_H_
#define AIT_DATA_PLAN_REGROUP_INTERNAL_H_

// Bucketing and packing: a window of the order, brought into another order by the lengths of its
// samples. Pure functions of these lengths, the seed, the epoch and the number of the window.

#include <cstdint>
#include <span>
#include <vector>

namespace ait::inline v0 {
namespace internal {

/// A window in the order of delivery.
struct Regrouped {
  std::vector<std::int32_t> places;  // in the window as it was
  /// Of packing: the first place of every row, and the end.
  std::vector<std::int32_t> row_begins;
};

/// Which window of which epoch, and its seed.
struct WindowKey {
  std::int64_t epoch = 0;
  std::int64_t window = 0;

  bool operator==(const WindowKey&) const = default;
};

/// Sorts by length, cuts into runs of `group` samples, of which one is shorter if need be, and
/// shuffles them, the shorter one last.
Regrouped BucketWindow(std::span<const std::int64_t> lengths, std::int64_t group,
                       std::uint64_t seed, WindowKey key);

/// Puts samples into rows of at most `budget`, the longest first, each into the fullest row that
/// has room for it, and shuffles the rows. Within a row samples keep their order.
Regrouped PackWindow(std::span<const std::int64_t> lengths, std::int64_t budget, std::uint64_t seed,
                     WindowKey key);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_PLAN_REGROUP_INTERNAL_H_

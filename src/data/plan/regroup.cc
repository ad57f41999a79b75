// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "ait/data/order.h"
#include "data/plan/regroup_internal.h"
#include "data/plan/roles_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

std::vector<std::int32_t> Places(std::size_t count) {
  std::vector<std::int32_t> places(count);
  std::iota(places.begin(), places.end(), 0);
  return places;
}

}  // namespace

Regrouped BucketWindow(std::span<const std::int64_t> lengths, std::int64_t group,
                       std::uint64_t seed, WindowKey key) {
  std::vector<std::int32_t> sorted = Places(lengths.size());
  std::stable_sort(sorted.begin(), sorted.end(), [&](std::int32_t a, std::int32_t b) {
    return lengths[static_cast<std::size_t>(a)] < lengths[static_cast<std::size_t>(b)];
  });
  Regrouped window;
  window.places.reserve(sorted.size());
  // One of the runs of the sorted window is the short one. It comes last, and which it is changes, or
  // whoever drops what fills no batch would never see the longest.
  const auto count = static_cast<std::int64_t>(sorted.size());
  const std::int64_t rest = count % group;
  const std::int64_t runs = count / group + (rest > 0 ? 1 : 0);
  const Permutation order(runs, SeedOf(seed, SeedRole::kGroups, key.window), key.epoch);
  const std::int64_t last = rest > 0 ? order(runs - 1) : runs;
  for (std::int64_t r = 0; r < runs; ++r) {
    const std::int64_t run = order(r);
    const auto begin = sorted.begin() + run * group - (run > last ? group - rest : 0);
    window.places.insert(window.places.end(), begin, begin + (run == last ? rest : group));
  }
  return window;
}

Regrouped PackWindow(std::span<const std::int64_t> lengths, std::int64_t budget, std::uint64_t seed,
                     WindowKey key) {
  std::vector<std::int32_t> sorted = Places(lengths.size());
  std::stable_sort(sorted.begin(), sorted.end(), [&](std::int32_t a, std::int32_t b) {
    return lengths[static_cast<std::size_t>(a)] > lengths[static_cast<std::size_t>(b)];
  });
  std::vector<std::vector<std::int32_t>> rows;
  std::set<std::pair<std::int64_t, std::size_t>> room;  // what is left in a row, and its number
  for (const std::int32_t place : sorted) {
    const std::int64_t length = lengths[static_cast<std::size_t>(place)];
    std::int64_t left = budget;
    std::size_t row = rows.size();
    const auto found = room.lower_bound({length, 0});
    if (found != room.end()) {
      std::tie(left, row) = *found;
      room.erase(found);
    } else {
      rows.emplace_back();
    }
    rows[row].push_back(place);
    room.emplace(std::max<std::int64_t>(left - length, 0), row);
  }
  Regrouped window;
  window.places.reserve(sorted.size());
  const auto count = static_cast<std::int64_t>(rows.size());
  const Permutation order(count, SeedOf(seed, SeedRole::kRows, key.window), key.epoch);
  for (std::int64_t r = 0; r < count; ++r) {
    std::vector<std::int32_t>& row = rows[static_cast<std::size_t>(order(r))];
    std::sort(row.begin(), row.end());
    window.row_begins.push_back(static_cast<std::int32_t>(window.places.size()));
    window.places.insert(window.places.end(), row.begin(), row.end());
  }
  window.row_begins.push_back(static_cast<std::int32_t>(window.places.size()));
  return window;
}

}  // namespace internal
}  // namespace ait::inline v0

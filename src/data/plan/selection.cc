// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "data/mix_internal.h"
#include "data/plan/selection_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

bool IsRange(const Subset& subset) {
  const Subset all;
  return subset.begin != all.begin || subset.end != all.end || subset.stride != all.stride;
}

}  // namespace

StatusOr<Selection> Selection::Create(const Subset& subset, std::int64_t count) {
  Selection selection;
  if (!subset.ids.empty()) {
    if (IsRange(subset)) {
      return InvalidArgumentError("a subset is a list of ids or a range, not both");
    }
    const auto& ids = subset.ids;
    if (ids.front() < 0 || ids.back() >= count ||
        std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<>()) != ids.end()) {
      return InvalidArgumentError("the ids of a subset, ", ids.front(), " to ", ids.back(),
                                  ", do not ascend within 0 to ", count - 1);
    }
    selection.ids_ = std::make_shared<const std::vector<std::int64_t>>(ids);
    selection.size_ = static_cast<std::int64_t>(ids.size());
    // No range begins so, or a list of two could be taken for one.
    selection.digest_ = Fold(Fold(0, ~std::uint64_t{0}), static_cast<std::uint64_t>(ids.size()));
    for (const std::int64_t id : ids) {
      selection.digest_ = Fold(selection.digest_, static_cast<std::uint64_t>(id));
    }
    return selection;
  }
  const std::int64_t end = std::min(subset.end, count);
  if (subset.begin < 0 || subset.begin >= end || subset.stride < 1) {
    return InvalidArgumentError("a subset from ", subset.begin, " to before ", subset.end,
                                " by steps of ", subset.stride, " has none of ", count,
                                " samples; 0 ≤ begin < end and a stride of at least 1 are needed");
  }
  selection.first_ = subset.begin;
  selection.stride_ = subset.stride;
  selection.size_ = (end - 1 - subset.begin) / subset.stride + 1;
  for (const std::int64_t word : {selection.size_, selection.first_, selection.stride_}) {
    selection.digest_ = Fold(selection.digest_, static_cast<std::uint64_t>(word));
  }
  return selection;
}

std::int64_t Selection::CountBelow(std::int64_t id) const {
  if (ids_) return std::lower_bound(ids_->begin(), ids_->end(), id) - ids_->begin();
  if (id <= first_) return 0;
  return std::min((id - 1 - first_) / stride_ + 1, size_);
}

}  // namespace internal
}  // namespace ait::inline v0

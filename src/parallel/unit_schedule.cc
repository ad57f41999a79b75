// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "parallel/unit_schedule_internal.h"

namespace ait::inline v0::internal {

void UnitSchedule::Begin() {
  if (!used_.empty()) plan_ = std::exchange(used_, {});
  place_ = 0;
  surprises_ = 0;
}

void UnitSchedule::Use(int unit) {
  used_.push_back(unit);
  if (plan_.empty()) return;
  const auto from = plan_.begin() + static_cast<std::ptrdiff_t>(std::min(place_, plan_.size()));
  const auto found = std::find(from, plan_.end(), unit);
  if (found != from || found == plan_.end()) ++surprises_;
  // A use that the plan does not have is put in between: the plan goes on behind it.
  if (found != plan_.end()) place_ = static_cast<std::size_t>(found - plan_.begin()) + 1;
}

std::vector<int> UnitSchedule::Ahead(int count) const {
  std::vector<int> units;
  for (std::size_t i = place_; i < plan_.size() && std::ssize(units) < count; ++i) {
    const bool is_in_use = !used_.empty() && plan_[i] == used_.back();
    if (!is_in_use && std::ranges::find(units, plan_[i]) == units.end()) units.push_back(plan_[i]);
  }
  return units;
}

int UnitSchedule::next() const { return place_ < plan_.size() ? plan_[place_] : -1; }

}  // namespace ait::inline v0::internal

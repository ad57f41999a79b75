// SPDX-License-Identifier: Apache-2.0
#include "ait/parallel/parameter_unit.h"

#include <algorithm>

#include "ait/optim/parameter_groups.h"

namespace ait::inline v0 {
namespace {

bool Holds(const ParameterUnit& unit, std::string_view name) {
  return std::ranges::any_of(
      unit.patterns, [&](const std::string& pattern) { return MatchesPattern(pattern, name); });
}

int UnitOf(const std::vector<ParameterUnit>& units, std::string_view name) {
  const auto found =
      std::ranges::find_if(units, [&](const ParameterUnit& unit) { return Holds(unit, name); });
  return found == units.end() ? -1 : static_cast<int>(found - units.begin());
}

}  // namespace

std::vector<ParameterUnit> UnitsUnder(std::string_view prefix, const NamedTensors& parameters) {
  std::vector<ParameterUnit> units;
  const std::string begin = StrCat(prefix, ".");
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const std::string& name = parameters.name(i);
    const std::size_t end = name.find('.', begin.size());
    if (!name.starts_with(begin) || end == std::string::npos) continue;
    const std::string unit = name.substr(0, end);
    if (std::ranges::any_of(units, [&](const ParameterUnit& u) { return u.name == unit; }))
      continue;
    units.push_back({.name = unit, .patterns = {unit + ".*"}});
  }
  return units;
}

Status AssignUnits(const std::vector<ParameterUnit>& units, std::int64_t whole_up_to,
                   std::vector<ParameterInfo>& parameters) {
  for (std::size_t u = 0; u < units.size(); ++u) {
    if (units[u].name.empty()) return InvalidArgumentError("unit ", u, " has no name");
    for (std::size_t other = 0; other < u; ++other) {
      if (units[other].name == units[u].name)
        return InvalidArgumentError("two units have the name ", units[u].name);
    }
    if (std::ranges::none_of(
            parameters, [&](const ParameterInfo& info) { return Holds(units[u], info.name); })) {
      return InvalidArgumentError("unit ", units[u].name,
                                  " matches no parameter; look at its patterns");
    }
  }
  for (ParameterInfo& info : parameters) {
    const int own = UnitOf(units, info.name);
    if (info.tied_to < 0) {
      info.unit = info.count() <= whole_up_to ? -1 : own;
      continue;
    }
    const ParameterInfo& owner = parameters[static_cast<std::size_t>(info.tied_to)];
    if (own != UnitOf(units, owner.name)) {
      const auto name = [&](int unit) {
        return unit < 0 ? std::string("no unit")
                        : StrCat("unit ", units[static_cast<std::size_t>(unit)].name);
      };
      return InvalidArgumentError("parameters ", owner.name, " and ", info.name,
                                  " are tied, but the first belongs to ",
                                  name(UnitOf(units, owner.name)), " and the second to ", name(own),
                                  "; put both into one unit, or into none");
    }
    info.unit = owner.unit;
  }
  return OkStatus();
}

}  // namespace ait::inline v0

// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/parameter_groups.h"

#include <algorithm>
#include <cmath>

namespace ait::inline v0 {
namespace {

Status CheckOption(const ParameterGroup& group, std::string_view option,
                   const std::optional<double>& value) {
  if (!value.has_value() || (std::isfinite(*value) && *value >= 0)) return OkStatus();
  return InvalidArgumentError("parameter group \"", group.name, "\": ", option, " is ", *value,
                              "; it must be finite and not negative");
}

}  // namespace

bool ParameterGroup::Selects(const ParameterSegment& parameter) const {
  const auto dimensions = static_cast<int>(parameter.shape.size());
  return dimensions >= min_dimensions && dimensions <= max_dimensions &&
         MatchesPattern(pattern, parameter.name);
}

ParameterGroup NoDecayForNormsAndBiases() {
  return {.name = "no_decay", .max_dimensions = 1, .weight_decay = 0.0};
}

std::optional<int> GroupOf(const ParameterGroups& groups, const ParameterSegment& parameter) {
  for (std::size_t i = 0; i < groups.size(); ++i) {
    if (groups[i].Selects(parameter)) return static_cast<int>(i);
  }
  return std::nullopt;
}

Status Validate(const ParameterGroups& groups) {
  for (const ParameterGroup& group : groups) {
    AIT_RETURN_IF_ERROR(CheckOption(group, "learning_rate", group.learning_rate));
    AIT_RETURN_IF_ERROR(CheckOption(group, "weight_decay", group.weight_decay));
    if (group.min_dimensions > group.max_dimensions) {
      return InvalidArgumentError("parameter group \"", group.name, "\": min_dimensions is ",
                                  group.min_dimensions, ", above max_dimensions, ",
                                  group.max_dimensions, "; it would select nothing");
    }
  }
  return OkStatus();
}

Status CheckSelection(const ParameterGroups& groups,
                      const std::vector<ParameterSegment>& parameters) {
  for (const ParameterGroup& group : groups) {
    if (group.pattern == "*") continue;
    const auto selected = [&](const ParameterSegment& parameter) {
      return group.Selects(parameter);
    };
    if (std::ranges::any_of(parameters, selected)) continue;
    return InvalidArgumentError(
        "parameter group \"", group.name, "\" with pattern \"", group.pattern,
        "\" selects none of the ", parameters.size(), " parameters",
        parameters.empty() ? std::string()
                           : StrCat(", whose names are like \"", parameters[0].name, "\""),
        "; mend the pattern or leave the group out");
  }
  return OkStatus();
}

bool MatchesPattern(std::string_view pattern, std::string_view text) {
  // Greedy, returning to the last star on a mismatch: O(|pattern| · |text|) at worst.
  std::size_t p = 0;
  std::size_t t = 0;
  std::size_t star = std::string_view::npos;
  std::size_t star_text = 0;
  while (t < text.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      star_text = t;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == text[t])) {
      ++p;
      ++t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++star_text;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*') ++p;
  return p == pattern.size();
}

}  // namespace ait::inline v0

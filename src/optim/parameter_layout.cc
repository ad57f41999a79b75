// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/parameter_layout.h"

#include <algorithm>
#include <string_view>
#include <unordered_set>

namespace ait::inline v0 {
namespace {

// True if the elements lie side by side in some order of the dimensions.
bool AreDense(const ParameterSegment& parameter) {
  const std::vector<std::int64_t>& strides = parameter.strides;
  if (strides.size() != parameter.shape.size()) return false;
  if (parameter.size() == 0) return true;
  std::vector<std::size_t> order;
  for (std::size_t d = 0; d < strides.size(); ++d) {
    if (parameter.shape[d] != 1) order.push_back(d);
  }
  std::ranges::sort(order, {}, [&](std::size_t d) { return strides[d]; });
  std::int64_t expected = 1;
  for (const std::size_t d : order) {
    if (strides[d] != expected) return false;
    expected *= parameter.shape[d];
  }
  return true;
}

}  // namespace

std::int64_t ParameterSegment::size() const {
  if (std::ranges::find(shape, 0) != shape.end()) return 0;
  std::int64_t size = 1;
  for (const std::int64_t dimension : shape) {
    if (__builtin_mul_overflow(size, dimension, &size) || size > kMaxElements)
      return kMaxElements + 1;
  }
  return size;
}

bool ParameterSegment::is_row_major() const {
  if (strides.empty() || size() == 0) return true;
  std::int64_t expected = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    if (shape[d] != 1 && strides[d] != expected) return false;
    expected *= shape[d];
  }
  return true;
}

Status Validate(const ParameterLayout& layout) {
  std::unordered_set<std::string_view> names;
  const ParameterSegment* previous = nullptr;
  for (const ParameterSegment& parameter : layout.parameters) {
    if (!names.insert(parameter.name).second) {
      return InvalidArgumentError("parameter \"", parameter.name,
                                  "\" is twice in the layout; names must differ");
    }
    for (std::int64_t dimension : parameter.shape) {
      if (dimension < 0) {
        return InvalidArgumentError("parameter \"", parameter.name,
                                    "\" has the negative dimension ", dimension);
      }
    }
    const std::int64_t earliest = previous == nullptr ? 0 : previous->range().end;
    if (parameter.begin < earliest) {
      return InvalidArgumentError(
          "parameter \"", parameter.name, "\" begins at element ", parameter.begin,
          previous == nullptr ? std::string_view(", before the buffer")
                              : std::string_view(", inside or before the parameter in front of it"),
          "; it must begin at ", earliest, " or later");
    }
    if (parameter.size() > kMaxElements || parameter.begin > kMaxElements - parameter.size()) {
      return InvalidArgumentError("parameter \"", parameter.name, "\" begins at element ",
                                  parameter.begin, " and ends after element ", kMaxElements,
                                  "; no buffer is that large");
    }
    if (!parameter.strides.empty() && !AreDense(parameter)) {
      return InvalidArgumentError("parameter \"", parameter.name, "\" has ",
                                  parameter.strides.size(), " strides for ", parameter.shape.size(),
                                  " dimensions, or strides that leave gaps; its elements must lie "
                                  "side by side, each dimension once");
    }
    previous = &parameter;
  }
  std::int64_t earliest = 0;
  for (const ElementRange& range : layout.owned) {
    if (range.begin < earliest || range.end < range.begin) {
      return InvalidArgumentError(
          "owned range [", range.begin, ", ", range.end,
          ") is not ascending or overlaps the one before it, which ends at ", earliest);
    }
    if (range.end > kMaxElements) {
      return InvalidArgumentError("owned range [", range.begin, ", ", range.end,
                                  ") ends after element ", kMaxElements,
                                  "; no buffer is that large");
    }
    earliest = range.end;
  }
  return OkStatus();
}

}  // namespace ait::inline v0

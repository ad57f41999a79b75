// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_PARAMETER_LAYOUT_H_
#define AIT_OPTIM_PARAMETER_LAYOUT_H_

// Where the parameters of a model lie in one flat buffer, and which elements of it this rank
// updates.
//
// Parameters and gradients are two buffers with the same element positions. A parameter is a
// contiguous run of elements; runs are in ascending order and do not overlap. Elements between them
// are padding: optimizers neither read nor write it. Under data parallelism a rank owns everything;
// with sharded optimizer state it owns one slice of each bucket, and slices may begin and end
// inside a parameter.
//
//   ait::ParameterLayout layout;
//   layout.parameters.push_back({.name = "weight", .begin = 0, .shape = {10, 20}});
//   layout.parameters.push_back({.name = "bias", .begin = 256, .shape = {10}});
//   layout.owned.push_back({.begin = 0, .end = 266});

#include <cstdint>
#include <string>
#include <vector>

#include "ait/base/status.h"

namespace ait::inline v0 {

/// The elements begin ≤ i < end of a flat buffer.
struct ElementRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  constexpr std::int64_t size() const { return end - begin; }
  friend constexpr bool operator==(const ElementRange&, const ElementRange&) = default;
};

/// The elements that both have; an empty range if there are none.
constexpr ElementRange Intersection(ElementRange a, ElementRange b) {
  const std::int64_t begin = a.begin > b.begin ? a.begin : b.begin;
  const std::int64_t end = a.end < b.end ? a.end : b.end;
  return {begin, end > begin ? end : begin};
}

/// No flat buffer is larger, so that sums and byte counts of positions fit 64 bits.
inline constexpr std::int64_t kMaxElements = std::int64_t{1} << 59;

/// One parameter: `begin` is the position of its first element, and its elements lie in row-major
/// order of `shape` unless `strides` say otherwise. A shape of no dimensions is one element; a
/// dimension of 0 makes it empty.
struct ParameterSegment {
  std::string name;
  std::int64_t begin = 0;
  std::vector<std::int64_t> shape;
  /// Number of its first element in the model, counted over parameters in registration order: does
  /// not depend on the layout. What stochastic rounding is keyed by.
  std::int64_t model_element = 0;
  /// Steps between elements, by dimension, where the order is another, such as channels-last; they
  /// leave no gaps. Empty: row-major.
  std::vector<std::int64_t> strides;

  /// Product of the shape; kMaxElements + 1 for every product above kMaxElements.
  std::int64_t size() const;
  /// The elements; only of a segment in a layout that `Validate` has accepted.
  ElementRange range() const { return {begin, begin + size()}; }
  /// True if the order is row-major, by whatever strides.
  bool is_row_major() const;
};

/// A flat buffer as an optimizer sees it.
struct ParameterLayout {
  std::vector<ParameterSegment> parameters;  // ascending, disjoint, names unique
  std::vector<ElementRange> owned;           // ascending, disjoint; may cover padding, may be none
};

/// **Errors.** InvalidArgument that names the parameter or range at fault: a name used twice, a
/// negative position or dimension, strides that do not fit the shape, ranges that overlap, descend,
/// or end after kMaxElements.
Status Validate(const ParameterLayout& layout);

}  // namespace ait::inline v0

#endif  // AIT_OPTIM_PARAMETER_LAYOUT_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_OWNED_PIECE_H_
#define AIT_OPTIM_OWNED_PIECE_H_

// What optimizer state is laid out by: state arrays, and the pieces of parameters that have them.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ait/base/dtype.h"
#include "ait/optim/parameter_layout.h"

namespace ait::inline v0::internal {

/// A state array: one entry for `block` elements of each parameter that has it.
struct StateArray {
  std::string name;
  DType dtype = DType::kFloat32;
  /// Elements that an entry stands for: 1, or a multiple of 64 counted from the parameter's start.
  std::int64_t block = 1;
  /// The parameters that have it; empty: all.
  std::function<bool(const ParameterSegment&)> of = {};

  std::int64_t EntriesOf(std::int64_t elements) const { return (elements + block - 1) / block; }
};

/// The elements of one parameter inside one owned range, or a part of them.
struct OwnedPiece {
  ElementRange range;             // of the flat buffer
  std::size_t parameter;          // index into the layout
  int group;                      // counted from 0; the last is that of parameters in no group
  std::vector<std::byte*> state;  // of its first element, by array; null: does not have it
};

}  // namespace ait::inline v0::internal

#endif  // AIT_OPTIM_OWNED_PIECE_H_

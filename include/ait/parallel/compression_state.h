// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_COMPRESSION_STATE_H_
#define AIT_PARALLEL_COMPRESSION_STATE_H_

// `CompressionState`: what the gradient compression of one rank must not forget between runs:
// residuals, factors and the number of steps, by parameter name.
//
//   AIT_ASSIGN_OR_RETURN(CompressionState state, engine->SaveCompression());
//   Write(StrCat("compression.", rank), state.ToBytes());
//   …                                                     // in the next run
//   AIT_ASSIGN_OR_RETURN(CompressionState old, CompressionState::FromBytes(Read(path)));
//   AIT_ASSIGN_OR_RETURN(std::string lost, engine->LoadCompression({&old, 1}));
//
// Every rank has a state of its own. On the same world size a rank needs only its own one. When the
// world size changes from N to M, new rank r takes the sum of the residuals of the old ranks r,
// r + M, r + 2 M …: their total, and so what all ranks owe to the model, stays. If one of these is
// not given, the residuals of this rank begin at zero, and the text that a load returns says so.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/status.h"

namespace ait::inline v0 {

/// One array of one parameter.
struct CompressionEntry {
  std::string parameter;
  std::string kind;  // "residual", of this rank; "factor", the same on all ranks
  std::vector<float> values;

  bool operator==(const CompressionEntry&) const = default;
};

struct CompressionState {
  std::string method;  // "int8"; empty: no state
  int rank = 0;
  int world_size = 1;
  std::int64_t step = 0;  // steps that counted
  std::vector<CompressionEntry> entries;

  /// Format version 1, the same on every machine: numbers are little-endian, and a hash at the end
  /// covers all before it.
  static constexpr std::uint32_t kVersion = 1;
  std::string ToBytes() const;
  /// **Errors.** DataLoss: cut off, or the hash does not fit; InvalidArgument: another kind of
  /// file, or a version that this program does not know.
  static StatusOr<CompressionState> FromBytes(std::string_view bytes);

  bool operator==(const CompressionState&) const = default;
};

}  // namespace ait::inline v0

#endif  // AIT_PARALLEL_COMPRESSION_STATE_H_

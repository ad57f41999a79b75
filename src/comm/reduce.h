// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_REDUCE_H_
#define AIT_COMM_REDUCE_H_

// The arithmetic of collectives: elements of several ranks become one, in rank order.
//
// Every transport reduces through this function, so the bits of a result do not depend on the
// transport, nor on how a buffer was cut into pieces, nor on the vector instructions of the
// processor (but for the sign and payload of a NaN).
//
//   const void* inputs[] = {mine, peers};
//   void* outputs[] = {mine, peers};                    // in place, on both ranks
//   ReduceRanks(inputs, outputs, count, DType::kFloat32, ReduceOp::kSum);

#include <cstddef>
#include <cstdint>
#include <span>

#include "ait/base/dtype.h"
#include "ait/base/simd.h"
#include "ait/comm/operation.h"

namespace ait::inline v0::internal {

/// Where the written lines shall be afterwards.
enum class Stores {
  kCached,
  /// In memory only, if the processor can do that: for results larger than the caches, which are
  /// not read soon. Lines that were not read before are then not read in order to be written.
  kStreaming,
};

/// For every i < `count`: reduces element i of `inputs` in their order, ((0 op 1) op 2) …, and
/// writes it to element i of every one of `outputs`. The rules of `ReduceOp` hold; kAverage divides
/// by the number of inputs and needs a floating-point dtype. An output may be one of the inputs or
/// of the outputs, not a shifted view of one. At least one input. `stores` is a hint, for outputs
/// that are no inputs; what was streamed is visible to whoever sees a later release of this thread.
/// `max_level` is for tests: the best level of the processor up to it.
///
/// **Cost.** One pass: every input is read once, every output written once; no allocation.
void ReduceRanks(std::span<const void* const> inputs, std::span<void* const> outputs,
                 std::int64_t count, DType dtype, ReduceOp op, Stores stores = Stores::kCached,
                 SimdLevel max_level = SimdLevel::kAvx512);

/// Copies like memcpy; `from` and `to` do not overlap.
void CopyBytes(void* to, const void* from, std::size_t bytes, Stores stores = Stores::kCached,
               SimdLevel max_level = SimdLevel::kAvx512);

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_REDUCE_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_REDUCE_H_
#define AIT_COMM_REDUCE_H_

// The arithmetic of collectives: elements of several ranks become one, in rank order.
//
// Every transport reduces through this function, so the bits of a result do not depend on the
// transport, nor on how a buffer was cut into pieces.

#include <cstdint>
#include <span>

#include "ait/base/dtype.h"
#include "ait/comm/operation.h"

namespace ait::inline v0::internal {

/// For every i < `count`: reduces element i of `inputs` in their order, ((0 op 1) op 2) …, and
/// writes it to element i of every one of `outputs`. The rules of `ReduceOp` hold; kAverage divides
/// by the number of inputs and needs a floating-point dtype. An output may be one of the inputs or
/// of the outputs, not a shifted view of one. At least one input.
///
/// **Cost.** Works in blocks that stay in the first-level cache: every input is read from memory
/// once, and an output that is also an input is written while its line is still cached.
void ReduceRanks(std::span<const void* const> inputs, std::span<void* const> outputs,
                 std::int64_t count, DType dtype, ReduceOp op);

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_REDUCE_H_

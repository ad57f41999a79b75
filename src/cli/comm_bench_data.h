// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CLI_COMM_BENCH_DATA_H_
#define AIT_CLI_COMM_BENCH_DATA_H_

// What ranks give in a checked collective, and what must come of it. Every number depends on the rank
// and the place, and every result is exact in its type for up to 100 ranks.

#include <cstdint>
#include <functional>
#include <optional>

#include "ait/comm/buffer.h"
#include "ait/comm/operation.h"

namespace ait::cli {

/// Element `i` of what `rank` gives. Products need numbers of their own.
double GivenElement(int rank, std::int64_t i, int ranks, DType dtype,
                    std::optional<ReduceOp> reduce);

/// Element `i` of the reduction of what all ranks give.
double ReducedElement(std::int64_t i, int ranks, DType dtype, ReduceOp reduce);

void Fill(Buffer buffer, const std::function<double(std::int64_t)>& value);

/// How many elements are not equal to `expected`, rounded to their type. -0 equals +0, NaN nothing.
std::int64_t CountWrong(ConstBuffer buffer, const std::function<double(std::int64_t)>& expected);

}  // namespace ait::cli

#endif  // AIT_CLI_COMM_BENCH_DATA_H_

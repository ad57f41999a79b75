// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_CONVERT_H_
#define AIT_COMM_CONVERT_H_

// Elements from one floating-point type to another, and divided.

#include <cstdint>

#include "ait/comm/buffer.h"

namespace ait::inline v0::internal {

/// Copies the elements of `from` to `to`, which has as many, rounding to nearest even. The types are
/// equal, or one of them is fp32 and the other fp16 or bf16. The buffers are the same or apart.
void Convert(const ConstBuffer& from, const Buffer& to);

/// Divides every element, fp32 or fp64.
void Divide(const Buffer& buffer, std::int64_t divisor);

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_CONVERT_H_

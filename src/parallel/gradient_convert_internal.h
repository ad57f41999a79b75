// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_GRADIENT_CONVERT_INTERNAL_H_
#define AIT_PARALLEL_GRADIENT_CONVERT_INTERNAL_H_

// Gradients on their way to other ranks and back: narrowed to the dtype in which they travel and
// widened again, within the memory that they lie in, and added up.

#include "ait/comm/buffer.h"
#include "ait/parallel/flat_layout.h"

namespace ait::inline v0::internal {

/// Rounds fp32 elements to `dtype`, bf16 or fp16, into the front of their own memory, which is
/// returned. A buffer that has the dtype already is returned as it is.
Buffer NarrowInPlace(const Buffer& buffer, DType dtype);

/// to[i] = from[i]; the dtypes are equal, or `to` is fp32 and `from` bf16 or fp16. The buffers may
/// be apart or the same, and `from` may lie in front within the memory that `to` ends: what
/// `NarrowInPlace` has made.
void Widen(const ConstBuffer& from, const Buffer& to);

/// to[i] += from[i], rounded to the dtype of `to`. Dtypes as for `Widen`; the buffers are apart.
void AddWidened(const ConstBuffer& from, const Buffer& to);

/// Sets all bytes to zero.
void SetZero(const Buffer& buffer);

/// Sets what lies between and behind the parameters of bucket `b` to zero; `whole` is the bucket.
void SetPaddingZero(const FlatLayout& layout, int b, const Buffer& whole);

}  // namespace ait::inline v0::internal

#endif  // AIT_PARALLEL_GRADIENT_CONVERT_INTERNAL_H_

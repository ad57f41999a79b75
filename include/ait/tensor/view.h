// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TENSOR_VIEW_H_
#define AIT_TENSOR_VIEW_H_

// Tensors as buffers of a collective: no copy, no libtorch header.
//
//   AIT_ASSIGN_OR_RETURN(Buffer gradient, View(tensor));
//   AIT_RETURN_IF_ERROR(communicator->AllReduce(gradient, ReduceOp::kSum).Wait());
//
// The view does not keep the tensor alive; the caller does, until the operation is done.

#include "ait/base/status.h"
#include "ait/comm/buffer.h"

namespace at {
class Tensor;
}  // namespace at

namespace ait::inline v0 {

/// The elements of `tensor`, which is dense, contiguous and on the CPU.
/// **Errors.** InvalidArgument: undefined, sparse, on another device, not contiguous (call
/// `.contiguous()`), with a pending conjugation or negation, or of a dtype that ait does not carry.
StatusOr<Buffer> View(const at::Tensor& tensor);

}  // namespace ait::inline v0

#endif  // AIT_TENSOR_VIEW_H_

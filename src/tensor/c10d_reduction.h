// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TENSOR_C10D_REDUCTION_H_
#define AIT_TENSOR_C10D_REDUCTION_H_

// Reductions of c10d in terms of ait's. All of these throw what libtorch throws.

#include "tensor/torch_internal.h"
// Keep the order.
#include <torch/csrc/distributed/c10d/Types.hpp>

#include "ait/comm/operation.h"

namespace ait::inline v0::internal {

/// The reduction that a collective of ait does; PREMUL_SUM is a sum of what was scaled before.
ReduceOp FromC10d(const c10d::ReduceOp& op);

/// BAND, BOR, BXOR: ait has no such reduction; they are gathered and folded.
bool IsBitwise(const c10d::ReduceOp& op);

/// A complex tensor as one of real numbers, where the reduction allows it; any other as it is.
at::Tensor Real(const at::Tensor& tensor, const c10d::ReduceOp& op);

/// Throws unless elements of this type can be reduced so.
void CheckArithmetic(const at::Tensor& tensor, const c10d::ReduceOp& op);

/// Multiplies by the factor of PREMUL_SUM, in place.
void Scale(const at::Tensor& tensor, const c10d::ReduceOp& op);

/// The tensor itself; for PREMUL_SUM a copy that is scaled.
at::Tensor Scaled(const at::Tensor& tensor, const c10d::ReduceOp& op);

/// Bitwise reduction over the rows of `every`, one a rank.
at::Tensor Fold(const at::Tensor& every, const c10d::ReduceOp& op);

}  // namespace ait::inline v0::internal

#endif  // AIT_TENSOR_C10D_REDUCTION_H_

// SPDX-License-Identifier: Apache-2.0
#include "tensor/c10d_reduction.h"

#include <ATen/ops/bitwise_and.h>
#include <ATen/ops/bitwise_or.h>
#include <ATen/ops/bitwise_xor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/view_as_real.h>

#include "ait/tensor/dtype.h"

namespace ait::inline v0::internal {

at::Tensor Real(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  if (!tensor.defined() || !tensor.is_complex()) return tensor;
  TORCH_CHECK_VALUE(c10d::isComplexViewAsRealAllowed(op),
                    "complex tensors are summed, averaged or scaled; not reduced otherwise");
  return at::view_as_real(tensor);
}

bool IsBitwise(const c10d::ReduceOp& op) {
  return op.op_ == c10d::ReduceOp::BAND || op.op_ == c10d::ReduceOp::BOR ||
         op.op_ == c10d::ReduceOp::BXOR;
}

ReduceOp FromC10d(const c10d::ReduceOp& op) {
  switch (op.op_) {
    case c10d::ReduceOp::SUM:
    case c10d::ReduceOp::PREMUL_SUM:
      return ReduceOp::kSum;
    case c10d::ReduceOp::AVG:
      return ReduceOp::kAverage;
    case c10d::ReduceOp::PRODUCT:
      return ReduceOp::kProduct;
    case c10d::ReduceOp::MIN:
      return ReduceOp::kMin;
    case c10d::ReduceOp::MAX:
      return ReduceOp::kMax;
    default:
      break;
  }
  TORCH_CHECK_VALUE(false, "the backend \"ait\" has no reduction number ", static_cast<int>(op.op_),
                    " for this collective");
}

void Scale(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  const auto* factor = dynamic_cast<const c10d::NCCLPreMulSumSupplement*>(op.supplement_.get());
  TORCH_CHECK_VALUE(factor != nullptr, "PREMUL_SUM comes without its factor");
  if (factor->tensor_factor.defined()) {
    tensor.mul_(factor->tensor_factor);
  } else {
    tensor.mul_(factor->double_factor);
  }
}

at::Tensor Scaled(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  if (op.op_ != c10d::ReduceOp::PREMUL_SUM) return tensor;
  at::Tensor copy = at::empty(tensor.sizes(), tensor.options().requires_grad(false)).copy_(tensor);
  Scale(copy, op);
  return copy;
}

void CheckArithmetic(const at::Tensor& tensor, const c10d::ReduceOp& op) {
  const StatusOr<DType> dtype = FromTorch(tensor.scalar_type());
  TORCH_CHECK_TYPE(dtype.ok(), Message(dtype.status()));
  TORCH_CHECK_TYPE(op.op_ != c10d::ReduceOp::AVG || IsFloatingPoint(*dtype), "an average of ",
                   tensor.scalar_type(), " is not defined; sum, then divide");
  TORCH_CHECK_TYPE(!IsBitwise(op) || !IsFloatingPoint(*dtype), "a bitwise reduction of ",
                   tensor.scalar_type(), " is not defined");
}

at::Tensor Fold(const at::Tensor& every, const c10d::ReduceOp& op) {
  at::Tensor folded = every.select(0, 0);
  for (std::int64_t rank = 1; rank < every.size(0); ++rank) {
    const at::Tensor next = every.select(0, rank);
    folded = op.op_ == c10d::ReduceOp::BAND  ? at::bitwise_and(folded, next)
             : op.op_ == c10d::ReduceOp::BOR ? at::bitwise_or(folded, next)
                                             : at::bitwise_xor(folded, next);
  }
  return folded;
}

}  // namespace ait::inline v0::internal

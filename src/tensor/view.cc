// SPDX-License-Identifier: Apache-2.0
#include "ait/tensor/view.h"

#include <string>

#include "ait/tensor/dtype.h"
#include "tensor/torch_internal.h"

namespace ait::inline v0 {

StatusOr<Buffer> View(const at::Tensor& tensor) {
  if (!tensor.defined()) return InvalidArgumentError("cannot view an undefined tensor");
  if (tensor.layout() != c10::kStrided) {
    return InvalidArgumentError("cannot view a sparse tensor as a buffer; call .to_dense()");
  }
  if (!tensor.device().is_cpu()) {
    return InvalidArgumentError("cannot view a tensor on ", tensor.device().str(),
                                " as a buffer of host memory");
  }
  if (tensor.is_conj() || tensor.is_neg()) {
    return InvalidArgumentError("cannot view a tensor with a pending conjugation or negation");
  }
  if (!tensor.is_contiguous()) {
    std::string strides;
    for (const std::int64_t stride : tensor.strides()) {
      strides += StrCat(strides.empty() ? "" : ", ", stride);
    }
    return InvalidArgumentError("cannot view a tensor with strides (", strides,
                                "), it is not contiguous; call .contiguous()");
  }
  AIT_ASSIGN_OR_RETURN(const DType dtype, FromTorch(tensor.scalar_type()));
  void* data = tensor.numel() == 0 ? nullptr : tensor.data_ptr();
  return Buffer{data, tensor.numel(), dtype};
}

}  // namespace ait::inline v0

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TENSOR_DTYPE_H_
#define AIT_TENSOR_DTYPE_H_

// The element types of ait and of libtorch, one to the other, without including libtorch.
//
//   AIT_ASSIGN_OR_RETURN(DType dtype, FromTorch(tensor.scalar_type()));
//   at::empty({4}, at::TensorOptions(ToTorch(DType::kBFloat16)));

#include <cstdint>

#include "ait/base/dtype.h"
#include "ait/base/status.h"

namespace c10 {
enum class ScalarType : std::int8_t;
}  // namespace c10

namespace ait::inline v0 {

/// The libtorch type of `dtype`. Every dtype has one.
c10::ScalarType ToTorch(DType dtype);

/// The dtype of a libtorch type.
/// **Errors.** InvalidArgument, naming the type, for those that ait does not carry: complex,
/// quantized, fp8.
StatusOr<DType> FromTorch(c10::ScalarType type);

}  // namespace ait::inline v0

#endif  // AIT_TENSOR_DTYPE_H_

// SPDX-License-Identifier: Apache-2.0
#include "ait/tensor/dtype.h"

#include <c10/core/ScalarType.h>

namespace ait::inline v0 {
namespace {

// In the order of DType's enumerators.
constexpr c10::ScalarType kTypes[kDTypeCount] = {
    c10::ScalarType::Byte,     c10::ScalarType::Char,   c10::ScalarType::Short,
    c10::ScalarType::Int,      c10::ScalarType::Long,   c10::ScalarType::Half,
    c10::ScalarType::BFloat16, c10::ScalarType::Float,  c10::ScalarType::Double,
    c10::ScalarType::Bool,     c10::ScalarType::UInt16, c10::ScalarType::UInt32,
};

}  // namespace

c10::ScalarType ToTorch(DType dtype) { return kTypes[static_cast<int>(dtype)]; }

StatusOr<DType> FromTorch(c10::ScalarType type) {
  for (int i = 0; i < kDTypeCount; ++i) {
    if (kTypes[i] == type) return static_cast<DType>(i);
  }
  return InvalidArgumentError("the element type ", c10::toString(type),
                              " is not one that ait carries; convert the tensor");
}

}  // namespace ait::inline v0

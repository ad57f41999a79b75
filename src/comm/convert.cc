// SPDX-License-Identifier: Apache-2.0
#include "comm/convert.h"

#include "comm/direct.h"
#include "comm/half.h"

namespace ait::inline v0::internal {
namespace {

template <typename T>
void DivideAll(const Buffer& buffer, std::int64_t divisor) {
  T* values = static_cast<T*>(buffer.data);
  const T by = static_cast<T>(divisor);
  for (std::int64_t i = 0; i < buffer.count; ++i) values[i] /= by;
}

}  // namespace

void Convert(const ConstBuffer& from, const Buffer& to) {
  if (from.dtype == to.dtype) return CopyElements(from, to);
  if (from.dtype == DType::kBFloat16) {
    ToFloat(static_cast<const BFloat16*>(from.data), static_cast<float*>(to.data), to.count);
  } else if (from.dtype == DType::kFloat16) {
    ToFloat(static_cast<const Float16*>(from.data), static_cast<float*>(to.data), to.count);
  } else if (to.dtype == DType::kBFloat16) {
    FromFloat(static_cast<const float*>(from.data), static_cast<BFloat16*>(to.data), to.count);
  } else {
    FromFloat(static_cast<const float*>(from.data), static_cast<Float16*>(to.data), to.count);
  }
}

void Divide(const Buffer& buffer, std::int64_t divisor) {
  if (buffer.dtype == DType::kFloat64) return DivideAll<double>(buffer, divisor);
  DivideAll<float>(buffer, divisor);
}

}  // namespace ait::inline v0::internal

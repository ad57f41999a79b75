// SPDX-License-Identifier: Apache-2.0
#include "comm/reduce.h"

#include <algorithm>
#include <cstring>

#include "comm/reduce_kernels.h"

namespace ait::inline v0::internal {
namespace {

ReduceElement ElementOf(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
    case DType::kBool:
      return kElementUInt8;
    case DType::kInt8:
      return kElementInt8;
    case DType::kInt16:
      return kElementInt16;
    case DType::kInt32:
      return kElementInt32;
    case DType::kInt64:
      return kElementInt64;
    case DType::kFloat16:
      return kElementFloat16;
    case DType::kBFloat16:
      return kElementBFloat16;
    case DType::kFloat32:
      return kElementFloat32;
    case DType::kFloat64:
      return kElementFloat64;
    case DType::kUInt16:
      return kElementUInt16;
    case DType::kUInt32:
      return kElementUInt32;
  }
  return kElementUInt8;
}

ReduceAction ActionOf(DType dtype, ReduceOp op) {
  const bool is_bool = dtype == DType::kBool;  // bytes of 0 and 1: or is their maximum
  switch (op) {
    case ReduceOp::kSum:
      return is_bool ? kActionMax : kActionSum;
    case ReduceOp::kAverage:
      return kActionAverage;
    case ReduceOp::kMax:
      return kActionMax;
    case ReduceOp::kMin:
      return kActionMin;
    case ReduceOp::kProduct:
      return is_bool ? kActionMin : kActionProduct;
  }
  return kActionSum;
}

}  // namespace

const ReduceKernels& ReduceKernelsFor([[maybe_unused]] SimdLevel cap) {
#if defined(__x86_64__)
  static const SimdLevel best = BestSimdLevel();
  switch (std::min(cap, best)) {
    case SimdLevel::kAvx512:
      return kAvx512ReduceKernels;
    case SimdLevel::kAvx2:
      return kAvx2ReduceKernels;
    case SimdLevel::kBaseline:
      break;
  }
#endif
  return kBaselineReduceKernels;
}

void ReduceRanks(std::span<const void* const> inputs, std::span<void* const> outputs,
                 std::int64_t count, DType dtype, ReduceOp op, Stores stores, SimdLevel max_level) {
  if (outputs.empty() || count <= 0) return;
  const ReduceKernels& kernels = ReduceKernelsFor(max_level);
  kernels.reduce[ElementOf(dtype)][ActionOf(dtype, op)](inputs.data(), std::ssize(inputs),
                                                        outputs.data(), std::ssize(outputs), count,
                                                        stores == Stores::kStreaming);
}

void CopyBytes(void* to, const void* from, std::size_t bytes, Stores stores, SimdLevel max_level) {
  if (bytes == 0) return;
  if (stores == Stores::kCached) {
    std::memcpy(to, from, bytes);
    return;
  }
  ReduceKernelsFor(max_level).copy_streaming(to, from, static_cast<std::int64_t>(bytes));
}

}  // namespace ait::inline v0::internal

// SPDX-License-Identifier: Apache-2.0
#include "cli/comm_bench_data.h"

#include <algorithm>
#include <cstring>

#include "ait/base/float16.h"

namespace ait::cli {
namespace {

bool IsSigned(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
    case DType::kUInt16:
    case DType::kUInt32:
    case DType::kBool:
      return false;
    default:
      return true;
  }
}

template <typename T>
T FromDouble(double value) {
  if constexpr (std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>) {
    return T(static_cast<float>(value));
  } else if constexpr (std::is_same_v<T, bool>) {
    return value != 0;
  } else if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::int64_t>(value));  // wraps around
  } else {
    return static_cast<T>(value);
  }
}

template <typename T>
bool Same(const T& seen, const T& expected) {
  if constexpr (std::is_integral_v<T>) {  // also a bool that is neither 0 nor 1
    return std::memcmp(&seen, &expected, sizeof(T)) == 0;
  } else if constexpr (std::is_floating_point_v<T>) {
    return seen == expected;
  } else {
    return static_cast<float>(seen) == static_cast<float>(expected);
  }
}

/// Calls `visit` with a T of the type.
template <typename Visit>
void VisitType(DType dtype, const Visit& visit) {
  switch (dtype) {
    case DType::kUInt8:
      return visit(std::uint8_t{});
    case DType::kInt8:
      return visit(std::int8_t{});
    case DType::kInt16:
      return visit(std::int16_t{});
    case DType::kInt32:
      return visit(std::int32_t{});
    case DType::kInt64:
      return visit(std::int64_t{});
    case DType::kFloat16:
      return visit(Float16{});
    case DType::kBFloat16:
      return visit(BFloat16{});
    case DType::kFloat32:
      return visit(float{});
    case DType::kFloat64:
      return visit(double{});
    case DType::kBool:
      return visit(bool{});
    case DType::kUInt16:
      return visit(std::uint16_t{});
    case DType::kUInt32:
      return visit(std::uint32_t{});
  }
}

}  // namespace

double GivenElement(int rank, std::int64_t i, int ranks, DType dtype,
                    std::optional<ReduceOp> reduce) {
  if (dtype == DType::kBool) return (i + rank) % 3 == 0 ? 1 : 0;
  if (reduce == ReduceOp::kProduct) return i % ranks == rank ? 2 : 1;
  return static_cast<double>((i + 3 * rank) % 5 - (IsSigned(dtype) ? 2 : 0));
}

double ReducedElement(std::int64_t i, int ranks, DType dtype, ReduceOp reduce) {
  double result = GivenElement(0, i, ranks, dtype, reduce);
  for (int rank = 1; rank < ranks; ++rank) {
    const double given = GivenElement(rank, i, ranks, dtype, reduce);
    switch (reduce) {
      case ReduceOp::kSum:
      case ReduceOp::kAverage:
        result += given;
        break;
      case ReduceOp::kMax:
        result = std::max(result, given);
        break;
      case ReduceOp::kMin:
        result = std::min(result, given);
        break;
      case ReduceOp::kProduct:
        result *= given;
        break;
    }
  }
  return reduce == ReduceOp::kAverage ? result / ranks : result;
}

void Fill(Buffer buffer, const std::function<double(std::int64_t)>& value) {
  VisitType(buffer.dtype, [&]<typename T>(T) {
    T* const x = static_cast<T*>(buffer.data);
    for (std::int64_t i = 0; i < buffer.count; ++i) x[i] = FromDouble<T>(value(i));
  });
}

std::int64_t CountWrong(ConstBuffer buffer, const std::function<double(std::int64_t)>& expected) {
  std::int64_t wrong = 0;
  VisitType(buffer.dtype, [&]<typename T>(T) {
    const T* const x = static_cast<const T*>(buffer.data);
    for (std::int64_t i = 0; i < buffer.count; ++i) {
      const T want = FromDouble<T>(expected(i));
      wrong += Same(x[i], want) ? 0 : 1;
    }
  });
  return wrong;
}

}  // namespace ait::cli

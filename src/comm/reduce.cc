// SPDX-License-Identifier: Apache-2.0
#include "comm/reduce.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "comm/half.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::int64_t kBlock = 2048;  // elements; 16 KiB of float64, half of a small L1 cache

/// What values of T are accumulated in.
template <typename T>
using Accumulator =
    std::conditional_t<std::is_same_v<T, BFloat16> || std::is_same_v<T, Float16>, float, T>;

/// The type in which values of T are added and multiplied: T itself, or for integers an unsigned
/// one that wraps around and is too wide to be promoted to int.
template <typename T, typename = void>
struct Wide {
  using type = T;
};
template <typename T>
struct Wide<T, std::enable_if_t<std::is_integral_v<T>>> {
  using type = std::conditional_t<(sizeof(T) < 4), std::uint32_t, std::make_unsigned_t<T>>;
};

struct Sum {
  template <typename A>
  static A Apply(A a, A b) {
    using W = typename Wide<A>::type;
    return static_cast<A>(static_cast<W>(a) + static_cast<W>(b));
  }
};

struct Product {
  template <typename A>
  static A Apply(A a, A b) {
    using W = typename Wide<A>::type;
    return static_cast<A>(static_cast<W>(a) * static_cast<W>(b));
  }
};

struct Max {
  template <typename A>
  static A Apply(A a, A b) {
    return b > a || b != b ? b : a;  // b != b: NaN wins
  }
};

struct Min {
  template <typename A>
  static A Apply(A a, A b) {
    return b < a || b != b ? b : a;
  }
};

// Before a loop of which one memory may be exactly another one, but not a shifted view of it: the
// compiler need not look for that, and vectorises.
#if defined(__clang__)
#define AIT_SAME_OR_APART _Pragma("clang loop vectorize(assume_safety)")
#else
#define AIT_SAME_OR_APART _Pragma("GCC ivdep")
#endif

/// One block of elements that are accumulated as they are.
template <typename T, typename Op>
void Accumulate(std::span<const void* const> inputs, std::int64_t begin, std::int64_t length,
                T* accumulator) {
  const T* first = static_cast<const T*>(inputs[0]) + begin;
  if (inputs.size() == 1) {
    if (accumulator != first) std::copy_n(first, length, accumulator);
    return;
  }
  const T* second = static_cast<const T*>(inputs[1]) + begin;
  AIT_SAME_OR_APART
  for (std::int64_t i = 0; i < length; ++i) accumulator[i] = Op::Apply(first[i], second[i]);
  for (const void* input : inputs.subspan(2)) {
    const T* next = static_cast<const T*>(input) + begin;
    AIT_SAME_OR_APART
    for (std::int64_t i = 0; i < length; ++i) accumulator[i] = Op::Apply(accumulator[i], next[i]);
  }
}

/// One block of half floats.
template <typename T, typename Op>
  requires(!std::is_same_v<Accumulator<T>, T>)
void Accumulate(std::span<const void* const> inputs, std::int64_t begin, std::int64_t length,
                float* accumulator) {
  ToFloat(static_cast<const T*>(inputs[0]) + begin, accumulator, length);
  alignas(64) float next[kBlock];
  for (const void* input : inputs.subspan(1)) {
    ToFloat(static_cast<const T*>(input) + begin, next, length);
    for (std::int64_t i = 0; i < length; ++i) accumulator[i] = Op::Apply(accumulator[i], next[i]);
  }
}

template <typename T, typename Op>
void Reduce(std::span<const void* const> inputs, std::span<void* const> outputs, std::int64_t count,
            bool average) {
  using A = Accumulator<T>;
  alignas(64) A block[kBlock];
  // The result may be accumulated where it belongs unless an input is there that comes late.
  const bool in_place = std::is_same_v<A, T> &&
                        std::find(inputs.begin() + std::min<std::ptrdiff_t>(2, std::ssize(inputs)),
                                  inputs.end(), outputs[0]) == inputs.end();
  for (std::int64_t begin = 0; begin < count; begin += kBlock) {
    const std::int64_t length = std::min(kBlock, count - begin);
    T* result = static_cast<T*>(outputs[0]) + begin;
    A* accumulator = block;
    if constexpr (std::is_same_v<A, T>) accumulator = in_place ? result : block;
    Accumulate<T, Op>(inputs, begin, length, accumulator);
    if (average) {
      const A divisor = static_cast<A>(inputs.size());
      for (std::int64_t i = 0; i < length; ++i) accumulator[i] = accumulator[i] / divisor;
    }
    if constexpr (std::is_same_v<A, T>) {
      if (!in_place) std::copy_n(accumulator, length, result);
    } else {
      FromFloat(accumulator, result, length);
    }
    for (void* output : outputs.subspan(1)) {
      T* copy = static_cast<T*>(output) + begin;
      if (copy != result) std::memcpy(copy, result, static_cast<std::size_t>(length) * sizeof(T));
    }
  }
}

template <typename T>
void Dispatch(std::span<const void* const> inputs, std::span<void* const> outputs,
              std::int64_t count, ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return Reduce<T, Sum>(inputs, outputs, count, /*average=*/false);
    case ReduceOp::kAverage:
      return Reduce<T, Sum>(inputs, outputs, count, /*average=*/true);
    case ReduceOp::kMax:
      return Reduce<T, Max>(inputs, outputs, count, /*average=*/false);
    case ReduceOp::kMin:
      return Reduce<T, Min>(inputs, outputs, count, /*average=*/false);
    case ReduceOp::kProduct:
      return Reduce<T, Product>(inputs, outputs, count, /*average=*/false);
  }
}

}  // namespace

void ReduceRanks(std::span<const void* const> inputs, std::span<void* const> outputs,
                 std::int64_t count, DType dtype, ReduceOp op) {
  if (outputs.empty()) return;
  switch (dtype) {
    case DType::kUInt8:
      return Dispatch<std::uint8_t>(inputs, outputs, count, op);
    case DType::kInt8:
      return Dispatch<std::int8_t>(inputs, outputs, count, op);
    case DType::kInt16:
      return Dispatch<std::int16_t>(inputs, outputs, count, op);
    case DType::kInt32:
      return Dispatch<std::int32_t>(inputs, outputs, count, op);
    case DType::kInt64:
      return Dispatch<std::int64_t>(inputs, outputs, count, op);
    case DType::kUInt16:
      return Dispatch<std::uint16_t>(inputs, outputs, count, op);
    case DType::kUInt32:
      return Dispatch<std::uint32_t>(inputs, outputs, count, op);
    case DType::kFloat16:
      return Dispatch<Float16>(inputs, outputs, count, op);
    case DType::kBFloat16:
      return Dispatch<BFloat16>(inputs, outputs, count, op);
    case DType::kFloat32:
      return Dispatch<float>(inputs, outputs, count, op);
    case DType::kFloat64:
      return Dispatch<double>(inputs, outputs, count, op);
    case DType::kBool: {  // bytes of 0 and 1: or is their maximum, and their minimum
      const bool is_or = op == ReduceOp::kSum || op == ReduceOp::kMax;
      return Dispatch<std::uint8_t>(inputs, outputs, count,
                                    is_or ? ReduceOp::kMax : ReduceOp::kMin);
    }
  }
}

}  // namespace ait::inline v0::internal

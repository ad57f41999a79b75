// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_BASE_DTYPE_H_
#define AIT_BASE_DTYPE_H_

// Element types of buffers and tensors, without libtorch.
//
// The numbers of the enumerators are part of file formats (token shards, manifests) and of the
// wire: they never change, new types are appended.

#include <cstdint>
#include <optional>
#include <string_view>

namespace ait::inline v0 {

enum class DType : std::uint8_t {
  kUInt8 = 0,
  kInt8 = 1,
  kInt16 = 2,
  kInt32 = 3,
  kInt64 = 4,
  kFloat16 = 5,   // IEEE 754 binary16
  kBFloat16 = 6,  // upper half of binary32
  kFloat32 = 7,
  kFloat64 = 8,
  kBool = 9,     // one byte, 0 or 1
  kUInt16 = 10,  // token files
  kUInt32 = 11,  // token files
};

inline constexpr int kDTypeCount = 12;

/// Bytes of one element.
constexpr int SizeOf(DType dtype) {
  constexpr int kSizes[kDTypeCount] = {1, 1, 2, 4, 8, 2, 2, 4, 8, 1, 2, 4};
  return kSizes[static_cast<int>(dtype)];
}

/// True for fp16, bf16, fp32 and fp64.
constexpr bool IsFloatingPoint(DType dtype) {
  return dtype >= DType::kFloat16 && dtype <= DType::kFloat64;
}

/// The usual short name: "float32", "bfloat16", "int64", …
std::string_view Name(DType dtype);

/// The dtype of that name; nullopt if there is none.
std::optional<DType> DTypeFromName(std::string_view name);

/// The dtype of a C++ type: kDTypeOf<float> is DType::kFloat32.
template <typename T>
inline constexpr DType kDTypeOf = T::kDType;
template <>
inline constexpr DType kDTypeOf<std::uint8_t> = DType::kUInt8;
template <>
inline constexpr DType kDTypeOf<std::int8_t> = DType::kInt8;
template <>
inline constexpr DType kDTypeOf<std::int16_t> = DType::kInt16;
template <>
inline constexpr DType kDTypeOf<std::int32_t> = DType::kInt32;
template <>
inline constexpr DType kDTypeOf<std::int64_t> = DType::kInt64;
template <>
inline constexpr DType kDTypeOf<float> = DType::kFloat32;
template <>
inline constexpr DType kDTypeOf<double> = DType::kFloat64;
template <>
inline constexpr DType kDTypeOf<bool> = DType::kBool;
template <>
inline constexpr DType kDTypeOf<std::uint16_t> = DType::kUInt16;
template <>
inline constexpr DType kDTypeOf<std::uint32_t> = DType::kUInt32;

}  // namespace ait::inline v0

#endif  // AIT_BASE_DTYPE_H_

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/simd_kernel.h"
#include "data/widen_internal.h"

namespace ait::inline v0::internal {
namespace {

template <typename T>
AIT_INLINE T LoadToken(const std::byte* bytes, std::size_t index) {
  T token;
  std::memcpy(&token, bytes + index * sizeof(T), sizeof(T));
  return token;
}

// Two loops over memory in the first-level cache, each of which the compiler turns into vector
// instructions of one width; a single loop would have two.
template <typename T>
AIT_INLINE std::uint64_t Widen(const std::byte* bytes, std::int64_t* out, std::size_t count) {
  using Unsigned = std::make_unsigned_t<T>;
  Unsigned max = 0;
  for (std::size_t i = 0; i < count; ++i) max = std::max(max, LoadToken<Unsigned>(bytes, i));
  for (std::size_t i = 0; i < count; ++i) {
    out[i] = static_cast<std::int64_t>(LoadToken<T>(bytes, i));
  }
  return max;
}

}  // namespace

namespace widen {

#define AIT_WIDEN(name, type)                                                                     \
  AIT_INLINE std::uint64_t name##Body(const std::byte* bytes, std::int64_t* out,                  \
                                      std::size_t count) {                                        \
    return Widen<type>(bytes, out, count);                                                        \
  }                                                                                               \
  AIT_KERNEL(std::uint64_t, name, (const std::byte* bytes, std::int64_t* out, std::size_t count), \
             (bytes, out, count))
AIT_WIDEN(WidenUInt8, std::uint8_t)
AIT_WIDEN(WidenUInt16, std::uint16_t)
AIT_WIDEN(WidenUInt32, std::uint32_t)
AIT_WIDEN(WidenInt16, std::int16_t)
AIT_WIDEN(WidenInt32, std::int32_t)
AIT_WIDEN(WidenInt64, std::int64_t)
#undef AIT_WIDEN

}  // namespace widen

std::uint64_t WidenAndMax(DType dtype, const std::byte* bytes, std::span<std::int64_t> out) {
  switch (dtype) {
    case DType::kUInt8:
      return widen::WidenUInt8(bytes, out.data(), out.size());
    case DType::kUInt16:
      return widen::WidenUInt16(bytes, out.data(), out.size());
    case DType::kUInt32:
      return widen::WidenUInt32(bytes, out.data(), out.size());
    case DType::kInt16:
      return widen::WidenInt16(bytes, out.data(), out.size());
    case DType::kInt32:
      return widen::WidenInt32(bytes, out.data(), out.size());
    default:
      return widen::WidenInt64(bytes, out.data(), out.size());
  }
}

}  // namespace ait::inline v0::internal

// SPDX-License-Identifier: Apache-2.0
#include "data/token_array_internal.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <type_traits>

namespace ait::inline v0 {
namespace internal {
namespace {

template <typename T>
T LoadToken(const std::byte* bytes, std::size_t index) {
  T token;
  std::memcpy(&token, bytes + index * sizeof(T), sizeof(T));  // the bytes need not be aligned
  return token;
}

// Widens tokens and returns the largest. A negative one counts as huge, so that one comparison
// finds both kinds that are not in the vocabulary. Two loops over memory in the cache, each of
// which the compiler turns into vector instructions.
template <typename T>
std::uint64_t WidenAndMax(const std::byte* bytes, std::span<std::int64_t> out) {
  std::make_unsigned_t<T> max = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    max = std::max(max, LoadToken<std::make_unsigned_t<T>>(bytes, i));
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    out[i] = static_cast<std::int64_t>(LoadToken<T>(bytes, i));
  }
  return max;
}

std::uint64_t WidenAndMax(DType dtype, const std::byte* bytes, std::span<std::int64_t> out) {
  switch (dtype) {
    case DType::kUInt8:
      return WidenAndMax<std::uint8_t>(bytes, out);
    case DType::kUInt16:
      return WidenAndMax<std::uint16_t>(bytes, out);
    case DType::kUInt32:
      return WidenAndMax<std::uint32_t>(bytes, out);
    case DType::kInt16:
      return WidenAndMax<std::int16_t>(bytes, out);
    case DType::kInt32:
      return WidenAndMax<std::int32_t>(bytes, out);
    default:
      return WidenAndMax<std::int64_t>(bytes, out);
  }
}

}  // namespace

Status TokenArray::Read(std::int64_t first, std::span<std::int64_t> out,
                        std::int64_t vocabulary_size) const {
  std::array<std::byte, 1 << 14> narrow;  // stays in the first-level cache
  const auto token_bytes = static_cast<std::size_t>(SizeOf(dtype_));
  while (!out.empty()) {
    const std::size_t count = std::min(out.size(), narrow.size() / token_bytes);
    const auto part = out.first(count);
    AIT_RETURN_IF_ERROR(file_.ReadAt(offset_bytes_ + first * SizeOf(dtype_),
                                     std::span(narrow).first(count * token_bytes)));
    const std::uint64_t max = WidenAndMax(dtype_, narrow.data(), part);
    if (max >= static_cast<std::uint64_t>(vocabulary_size)) {
      const auto bad = std::ranges::find_if(
          part, [&](std::int64_t token) { return token < 0 || token >= vocabulary_size; });
      return DataLossError("token ", *bad, " at position ", first + (bad - part.begin()), " of ",
                           file_.path(), " is not in the vocabulary of ", vocabulary_size);
    }
    first += static_cast<std::int64_t>(count);
    out = out.subspan(count);
  }
  return OkStatus();
}

}  // namespace internal
}  // namespace ait::inline v0

// SPDX-License-Identifier: Apache-2.0
#include "data/token_array_internal.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace ait::inline v0 {
namespace internal {
namespace {

// Widens tokens from unaligned memory. Negative ones become huge, so that one comparison finds both
// kinds that are not in the vocabulary.
template <typename T>
std::uint64_t WidenAndMax(const std::byte* bytes, std::span<std::int64_t> out) {
  std::uint64_t max = 0;
  for (std::size_t i = 0; i < out.size(); ++i) {
    T token;
    std::memcpy(&token, bytes + i * sizeof(T), sizeof(T));
    out[i] = static_cast<std::int64_t>(token);
    max = std::max(max, static_cast<std::uint64_t>(out[i]));
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
      const auto bad = std::ranges::find(part, static_cast<std::int64_t>(max));
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

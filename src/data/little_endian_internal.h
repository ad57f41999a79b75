// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_LITTLE_ENDIAN_INTERNAL_H_
#define AIT_DATA_LITTLE_ENDIAN_INTERNAL_H_

// Numbers to and from the little-endian bytes of a file, at any alignment.

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstring>
#include <span>

namespace ait::inline v0 {
namespace internal {

// Tokens are copied between files and memory as they are.
static_assert(std::endian::native == std::endian::little, "ait needs a little-endian machine");

template <std::integral T>
T LoadLittleEndian(std::span<const std::byte> bytes, std::size_t offset) {
  T value;
  std::memcpy(&value, bytes.subspan(offset, sizeof(T)).data(), sizeof(T));
  return value;
}

template <std::integral T>
void StoreLittleEndian(std::span<std::byte> bytes, std::size_t offset, T value) {
  std::memcpy(bytes.subspan(offset, sizeof(T)).data(), &value, sizeof(T));
}

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_LITTLE_ENDIAN_INTERNAL_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_HASH_INTERNAL_H_
#define AIT_PARALLEL_HASH_INTERNAL_H_

// A 64-bit hash of numbers and text that is the same on every machine: FNV-1a (Fowler, Noll, Vo;
// the constants are those of draft-eastlake-fnv), finished by the 64-bit mix of MurmurHash3
// (Appleby).

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace ait::inline v0::internal {

class Hash64 {
 public:
  Hash64& Add(std::uint64_t value) {
    for (int i = 0; i < 8; ++i) Byte(static_cast<unsigned char>(value >> (8 * i)));
    return *this;
  }
  Hash64& Add(std::string_view text) {
    for (const char c : text) Byte(static_cast<unsigned char>(c));
    return Add(static_cast<std::uint64_t>(text.size()));
  }
  std::uint64_t value() const { return Mix(state_); }

  static std::uint64_t Mix(std::uint64_t h) {
    h = (h ^ (h >> 33)) * 0xff51afd7ed558ccdull;
    h = (h ^ (h >> 33)) * 0xc4ceb9fe1a85ec53ull;
    return h ^ (h >> 33);
  }

 private:
  void Byte(unsigned char byte) { state_ = (state_ ^ byte) * 0x100000001b3ull; }
  std::uint64_t state_ = 0xcbf29ce484222325ull;
};

/// The hash of much memory: one mix for every 8 bytes.
inline std::uint64_t HashBytes(const void* data, std::size_t bytes) {
  const auto* begin = static_cast<const unsigned char*>(data);
  std::uint64_t h = bytes;
  for (std::size_t i = 0; i < bytes; i += 8) {
    std::uint64_t word = 0;
    std::memcpy(&word, begin + i, bytes - i < 8 ? bytes - i : 8);
    h = Hash64::Mix(h ^ word) + i;
  }
  return h;
}

}  // namespace ait::inline v0::internal

#endif  // AIT_PARALLEL_HASH_INTERNAL_H_

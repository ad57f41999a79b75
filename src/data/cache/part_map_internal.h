// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_CACHE_PART_MAP_INTERNAL_H_
#define AIT_DATA_CACHE_PART_MAP_INTERNAL_H_

// The head of an entry of the cache: what the file holds, and which parts of it are there.
//
//   0   8   "AITCACHE"
//   8   4   version, 1
//   12  4   parts n
//   16  8   bytes of a part
//   24  8   offset in the object of the first byte
//   32  8   bytes of the object that belong here
//   40  8   bytes of the object
//   48  8   random number of this file
//   56  8   where the parts begin, a multiple of 4096
//   64  32  key, a SHA-256
//   96  4   CRC-32C of bytes 0 to 95
//   100 4   zero
//   104 8   number of the last use, a hint without a checksum
//   112 16  zero
//   128 16n slots: CRC-32C of the part, "PART", CRC-32C of {random number, index, both}, zero
//
// All numbers are little-endian. A slot is written after its part is durable; a slot that does not
// check is a part that is not there. `ait stage` keeps the same map in a file of its own.

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "ait/base/status.h"

namespace ait::inline v0 {
namespace internal {

using CacheKey = std::array<std::byte, 32>;

/// SHA-256 of texts and numbers, each with its length in front.
StatusOr<CacheKey> MakeCacheKey(std::initializer_list<std::string_view> texts,
                                std::initializer_list<std::int64_t> numbers);
/// 64 hexadecimal digits.
std::string HexName(const CacheKey& key);

struct PartMapHeader {
  std::int64_t part_bytes = 0;
  std::int64_t first_byte = 0;
  std::int64_t length_bytes = 0;
  std::int64_t object_bytes = 0;
  CacheKey key{};
  std::uint64_t nonce = 0;  // chosen by WriteHeader

  int parts() const { return static_cast<int>((length_bytes + part_bytes - 1) / part_bytes); }
  std::int64_t data_offset() const;
  std::int64_t PartLength(int part) const;
  /// Everything but the nonce is equal.
  bool IsSame(const PartMapHeader& other) const;
};

inline constexpr std::int64_t kLastUseOffset = 104;
inline constexpr std::int64_t kSlotsOffset = 128;
inline constexpr std::int64_t kSlotBytes = 16;
inline constexpr int kMaxParts = 65'536;
/// Larger ones are mistakes of whoever states the size, and would overflow what is counted here.
inline constexpr std::int64_t kMaxObjectBytes = std::int64_t{1} << 50;

/// Writes the head of an empty file, with no part there, and makes the file as long as all of it.
Status WriteHeader(int fd, PartMapHeader& header, bool with_data);
/// **Errors.** DataLoss: no header, or a damaged one.
StatusOr<PartMapHeader> ReadHeader(int fd);

/// The checksum of a part that is there; nullopt if it is not. **Errors.** By errno.
StatusOr<std::optional<std::uint32_t>> ReadSlot(int fd, const PartMapHeader& header, int part);
Status WriteSlot(int fd, const PartMapHeader& header, int part, std::uint32_t crc);
Status ClearSlot(int fd, int part);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_CACHE_PART_MAP_INTERNAL_H_

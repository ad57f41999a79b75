// SPDX-License-Identifier: Apache-2.0
#include <openssl/evp.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <vector>

#include "ait/base/types.h"
#include "ait/data/crc32c.h"
#include "data/cache/file_io_internal.h"
#include "data/cache/part_map_internal.h"
#include "data/json_internal.h"
#include "data/little_endian_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

constexpr char kMagic[] = "AITCACHE";
constexpr std::uint32_t kVersion = 1;
constexpr std::uint32_t kSlotMark = 0x54524150;  // "PART"
constexpr std::int64_t kPage = 4096;
constexpr std::size_t kCheckedBytes = 96;

std::uint32_t SlotCheck(const PartMapHeader& header, int part, std::uint32_t crc) {
  std::array<std::byte, 20> bytes;
  StoreLittleEndian(bytes, 0, header.nonce);
  StoreLittleEndian(bytes, 8, static_cast<std::uint32_t>(part));
  StoreLittleEndian(bytes, 12, crc);
  StoreLittleEndian(bytes, 16, kSlotMark);
  return Crc32c(bytes);
}

std::int64_t SlotOffset(int part) { return kSlotsOffset + kSlotBytes * part; }

}  // namespace

StatusOr<CacheKey> MakeCacheKey(std::initializer_list<std::string_view> texts,
                                std::initializer_list<std::int64_t> numbers) {
  std::string text;
  const auto append = [&text](std::uint64_t value) {
    std::array<std::byte, 8> bytes;
    StoreLittleEndian(bytes, 0, value);
    text.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  };
  for (std::string_view part : texts) {
    append(part.size());
    text.append(part);
  }
  for (std::int64_t number : numbers) append(static_cast<std::uint64_t>(number));
  CacheKey key{};
  unsigned length = 0;
  if (EVP_Digest(text.data(), text.size(), reinterpret_cast<unsigned char*>(key.data()), &length,
                 EVP_sha256(), nullptr) != 1 ||
      length != key.size()) {
    return InternalError("libcrypto has no SHA-256");
  }
  return key;
}

std::string HexName(const CacheKey& key) {
  std::string name;
  for (std::byte byte : key) name += HexDigits(std::to_integer<std::uint64_t>(byte), 2);
  return name;
}

std::int64_t PartMapHeader::data_offset() const {
  return RoundUp(kSlotsOffset + kSlotBytes * parts(), kPage);
}

std::int64_t PartMapHeader::PartLength(int part) const {
  return std::min(part_bytes, length_bytes - part_bytes * part);
}

bool PartMapHeader::IsSame(const PartMapHeader& other) const {
  return part_bytes == other.part_bytes && first_byte == other.first_byte &&
         length_bytes == other.length_bytes && object_bytes == other.object_bytes &&
         key == other.key;
}

Status WriteHeader(int fd, PartMapHeader& header, bool with_data) {
  header.nonce = RandomBits();
  std::vector<std::byte> bytes(static_cast<std::size_t>(header.data_offset()));
  std::memcpy(bytes.data(), kMagic, 8);
  StoreLittleEndian(bytes, 8, kVersion);
  StoreLittleEndian(bytes, 12, static_cast<std::uint32_t>(header.parts()));
  StoreLittleEndian(bytes, 16, header.part_bytes);
  StoreLittleEndian(bytes, 24, header.first_byte);
  StoreLittleEndian(bytes, 32, header.length_bytes);
  StoreLittleEndian(bytes, 40, header.object_bytes);
  StoreLittleEndian(bytes, 48, header.nonce);
  StoreLittleEndian(bytes, 56, header.data_offset());
  std::ranges::copy(header.key, bytes.begin() + 64);
  StoreLittleEndian(bytes, 96, Crc32c(std::span(bytes).first(kCheckedBytes)));
  AIT_RETURN_IF_ERROR(WriteFully(fd, 0, bytes));
  if (with_data && ::ftruncate(fd, header.data_offset() + header.length_bytes) != 0) {
    return ErrnoError(errno, "cannot make the file ", header.data_offset() + header.length_bytes,
                      " bytes long");
  }
  return OkStatus();
}

StatusOr<PartMapHeader> ReadHeader(int fd) {
  std::array<std::byte, kSlotsOffset> bytes;
  AIT_RETURN_IF_ERROR(ReadFully(fd, 0, bytes));
  if (std::memcmp(bytes.data(), kMagic, 8) != 0) return DataLossError("it is no part map");
  if (LoadLittleEndian<std::uint32_t>(bytes, 96) != Crc32c(std::span(bytes).first(kCheckedBytes))) {
    return DataLossError("the checksum of the header does not fit");
  }
  if (const auto version = LoadLittleEndian<std::uint32_t>(bytes, 8); version != kVersion) {
    return DataLossError("version ", version, " is not known, only ", kVersion);
  }
  PartMapHeader header = {.part_bytes = LoadLittleEndian<std::int64_t>(bytes, 16),
                          .first_byte = LoadLittleEndian<std::int64_t>(bytes, 24),
                          .length_bytes = LoadLittleEndian<std::int64_t>(bytes, 32),
                          .object_bytes = LoadLittleEndian<std::int64_t>(bytes, 40),
                          .nonce = LoadLittleEndian<std::uint64_t>(bytes, 48)};
  std::copy_n(bytes.begin() + 64, header.key.size(), header.key.begin());
  if (header.part_bytes < 1 || header.length_bytes < 0 || header.first_byte < 0 ||
      header.object_bytes < header.length_bytes ||
      header.length_bytes / header.part_bytes > kMaxParts ||
      LoadLittleEndian<std::uint32_t>(bytes, 12) != static_cast<std::uint32_t>(header.parts()) ||
      LoadLittleEndian<std::int64_t>(bytes, 56) != header.data_offset()) {
    return DataLossError("the fields of the header do not fit each other");
  }
  return header;
}

StatusOr<std::optional<std::uint32_t>> ReadSlot(int fd, const PartMapHeader& header, int part) {
  std::array<std::byte, kSlotBytes> bytes;
  AIT_RETURN_IF_ERROR(ReadFully(fd, SlotOffset(part), bytes));
  const auto crc = LoadLittleEndian<std::uint32_t>(bytes, 0);
  if (LoadLittleEndian<std::uint32_t>(bytes, 4) != kSlotMark ||
      LoadLittleEndian<std::uint32_t>(bytes, 8) != SlotCheck(header, part, crc)) {
    return std::optional<std::uint32_t>();
  }
  return std::optional<std::uint32_t>(crc);
}

Status WriteSlot(int fd, const PartMapHeader& header, int part, std::uint32_t crc) {
  std::array<std::byte, kSlotBytes> bytes{};
  StoreLittleEndian(bytes, 0, crc);
  StoreLittleEndian(bytes, 4, kSlotMark);
  StoreLittleEndian(bytes, 8, SlotCheck(header, part, crc));
  return WriteFully(fd, SlotOffset(part), bytes);
}

Status ClearSlot(int fd, int part) {
  return WriteFully(fd, SlotOffset(part), std::array<std::byte, kSlotBytes>{});
}

}  // namespace internal
}  // namespace ait::inline v0

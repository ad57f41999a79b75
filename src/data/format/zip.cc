// SPDX-License-Identifier: Apache-2.0
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <set>
#include <utility>

#include "data/format/format_util_internal.h"
#include "data/format/zip_internal.h"
#include "data/little_endian_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

constexpr std::int64_t kEndBytes = 22;
constexpr std::int64_t kLocatorBytes = 20;
constexpr std::int64_t kEnd64Bytes = 56;
constexpr std::size_t kEntryBytes = 46;
constexpr std::int64_t kLocalBytes = 30;
constexpr std::int64_t kMaxDirectoryBytes = 64 << 20;
constexpr std::uint32_t kFull32 = 0xFFFFFFFF;
constexpr std::uint16_t kFull16 = 0xFFFF;

template <typename T>
T Load(const ByteView& view, std::size_t offset) {
  return LoadLittleEndian<T>(view.bytes(), offset);
}

template <typename... Parts>
Status Damaged(const StoredObject& archive, const Parts&... parts) {
  return DataLossError("zip archive ", archive.info().url, " is truncated or damaged: ", parts...);
}

struct Directory {
  std::int64_t offset_bytes = 0;
  std::int64_t size_bytes = 0;
  std::int64_t members = 0;
};

StatusOr<Directory> FindDirectory(const StoredObject& archive) {
  const std::int64_t size = archive.info().size_bytes;
  const std::int64_t tail_bytes = std::min<std::int64_t>(size, kEndBytes + kFull16);
  AIT_ASSIGN_OR_RETURN(const ByteView tail,
                       ReadRange(archive, size - tail_bytes, tail_bytes, tail_bytes));
  // The end record is followed by a comment that reaches exactly to the end of the file.
  std::int64_t at = tail_bytes - kEndBytes;
  for (; at >= 0; --at) {
    const auto place = static_cast<std::size_t>(at);
    if (tail.text().substr(place).starts_with("PK\x05\x06") &&
        at + kEndBytes + Load<std::uint16_t>(tail, place + 20) == tail_bytes) {
      break;
    }
  }
  if (at < 0) return Damaged(archive, "it has no end of central directory");
  const ByteView end = tail.Slice(static_cast<std::size_t>(at), kEndBytes);
  std::int64_t end_begin = size - tail_bytes + at;
  Directory directory = {.offset_bytes = Load<std::uint32_t>(end, 16),
                         .size_bytes = Load<std::uint32_t>(end, 12),
                         .members = Load<std::uint16_t>(end, 10)};
  if (Load<std::uint16_t>(end, 4) != 0 || Load<std::uint16_t>(end, 6) != 0 ||
      Load<std::uint16_t>(end, 8) != Load<std::uint16_t>(end, 10)) {
    return UnimplementedError("zip archive ", archive.info().url, " is of several volumes");
  }
  if (directory.offset_bytes == kFull32 || directory.size_bytes == kFull32 ||
      directory.members == kFull16) {
    AIT_ASSIGN_OR_RETURN(const ByteView locator, ReadRange(archive, end_begin - kLocatorBytes,
                                                           kLocatorBytes, kLocatorBytes));
    const std::uint64_t offset64 = Load<std::uint64_t>(locator, 8);
    if (!locator.text().starts_with("PK\x06\x07") ||
        offset64 > static_cast<std::uint64_t>(end_begin)) {
      return Damaged(archive, "the locator of its zip64 record is not there");
    }
    end_begin = static_cast<std::int64_t>(offset64);
    AIT_ASSIGN_OR_RETURN(const ByteView end64,
                         ReadRange(archive, end_begin, kEnd64Bytes, kEnd64Bytes));
    const auto members = Load<std::uint64_t>(end64, 32);
    const auto bytes = Load<std::uint64_t>(end64, 40);
    const auto offset = Load<std::uint64_t>(end64, 48);
    constexpr auto kMost = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    if (!end64.text().starts_with("PK\x06\x06") || members > kMost || bytes > kMost ||
        offset > kMost) {
      return Damaged(archive, "its zip64 record is not one");
    }
    directory = {static_cast<std::int64_t>(offset), static_cast<std::int64_t>(bytes),
                 static_cast<std::int64_t>(members)};
  }
  if (directory.offset_bytes > end_begin ||
      directory.size_bytes != end_begin - directory.offset_bytes) {
    return Damaged(archive, "its central directory does not end where the end record begins");
  }
  return directory;
}

// Takes the 64-bit sizes of the extra field, of those that are full in the entry.
bool ReadExtra64(std::string_view extra, std::span<std::int64_t* const> full) {
  while (extra.size() >= 4) {
    const auto bytes = std::as_bytes(std::span(extra));
    const auto id = LoadLittleEndian<std::uint16_t>(bytes, 0);
    const std::size_t length = LoadLittleEndian<std::uint16_t>(bytes, 2);
    if (length > extra.size() - 4) return false;
    if (id == 1) {
      if (length < full.size() * 8) return false;
      for (std::size_t i = 0; i < full.size(); ++i) {
        *full[i] = LoadLittleEndian<std::int64_t>(bytes, 4 + i * 8);
        if (*full[i] < 0) return false;
      }
      return true;
    }
    extra.remove_prefix(4 + length);
  }
  return full.empty();
}

Status FindContents(const StoredObject& archive, ZipMember& member, std::int64_t end_bytes) {
  AIT_ASSIGN_OR_RETURN(const ByteView local,
                       ReadRange(archive, member.offset_bytes, kLocalBytes, kLocalBytes));
  const std::int64_t name_bytes = Load<std::uint16_t>(local, 26);
  const std::int64_t extra_bytes = Load<std::uint16_t>(local, 28);
  AIT_ASSIGN_OR_RETURN(const ByteView name,
                       ReadRange(archive, member.offset_bytes + kLocalBytes, name_bytes, kFull16));
  if (!local.text().starts_with("PK\x03\x04") || name.text() != member.name) {
    return Damaged(archive, "the header of \"", member.name, "\" is not where its directory says");
  }
  member.offset_bytes += kLocalBytes + name_bytes + extra_bytes;
  if (member.offset_bytes > end_bytes || member.packed_bytes > end_bytes - member.offset_bytes) {
    return Damaged(archive, "\"", member.name, "\" goes beyond its members");
  }
  return OkStatus();
}

// A part of another object.
class Part final : public StoredObject {
 public:
  Part(std::shared_ptr<const StoredObject> whole, std::int64_t begin, std::int64_t size,
       std::string_view name)
      : whole_(std::move(whole)),
        begin_(begin),
        info_{.url = StrCat(whole_->info().url, "/", name),
              .size_bytes = size,
              .version = whole_->info().version} {}
  const ObjectInfo& info() const override { return info_; }
  Status ReadAt(std::int64_t offset_bytes, std::span<std::byte> out) const override {
    AIT_RETURN_IF_ERROR(CheckRange(info_, offset_bytes, static_cast<std::int64_t>(out.size())));
    return whole_->ReadAt(begin_ + offset_bytes, out);
  }

 private:
  const std::shared_ptr<const StoredObject> whole_;
  const std::int64_t begin_;
  const ObjectInfo info_;
};

StatusOr<std::uint32_t> Crc32Of(const StoredObject& object) {
  AIT_ASSIGN_OR_RETURN(const auto blocks, object.Stream({}));
  uLong crc = crc32(0, nullptr, 0);
  while (true) {
    AIT_ASSIGN_OR_RETURN(const ByteView block, blocks->Next());
    if (block.is_empty()) return static_cast<std::uint32_t>(crc);
    crc = crc32_z(crc, reinterpret_cast<const Bytef*>(block.data()), block.size_bytes());
  }
}

// Unpacks a raw deflate stream to exactly `out`.
bool Inflate(std::span<const std::byte> packed, std::span<std::byte> out) {
  z_stream zlib = {};
  if (inflateInit2(&zlib, -MAX_WBITS) != Z_OK) return false;
  std::size_t read = 0;
  std::size_t written = 0;
  int result = Z_OK;
  std::byte beyond;
  do {
    const auto in = static_cast<uInt>(std::min<std::size_t>(packed.size() - read, 1 << 30));
    const auto room = static_cast<uInt>(std::min<std::size_t>(out.size() - written, 1 << 30));
    zlib.next_in = reinterpret_cast<Bytef*>(const_cast<std::byte*>(packed.data())) + read;
    zlib.avail_in = in;
    // With no room left one byte more tells an end from more contents.
    zlib.next_out = reinterpret_cast<Bytef*>(room > 0 ? out.data() + written : &beyond);
    zlib.avail_out = room > 0 ? room : 1;
    result = inflate(&zlib, Z_NO_FLUSH);
    read += in - zlib.avail_in;
    if (room > 0) {
      written += room - zlib.avail_out;
    } else if (zlib.avail_out == 0) {
      result = Z_DATA_ERROR;
    }
  } while (result == Z_OK);
  inflateEnd(&zlib);
  return result == Z_STREAM_END && read == packed.size() && written == out.size();
}

}  // namespace

StatusOr<std::vector<ZipMember>> ReadZip(const StoredObject& archive) {
  AIT_ASSIGN_OR_RETURN(const Directory directory, FindDirectory(archive));
  AIT_ASSIGN_OR_RETURN(const ByteView entries, ReadRange(archive, directory.offset_bytes,
                                                         directory.size_bytes, kMaxDirectoryBytes));
  std::vector<ZipMember> members;
  std::set<std::string> names;
  std::size_t at = 0;
  while (at < entries.size_bytes()) {
    if (entries.size_bytes() - at < kEntryBytes) return Damaged(archive, "its directory is cut");
    const ByteView entry = entries.Slice(at, kEntryBytes);
    const std::size_t name_bytes = Load<std::uint16_t>(entry, 28);
    const std::size_t extra_bytes = Load<std::uint16_t>(entry, 30);
    const std::size_t all = kEntryBytes + name_bytes + extra_bytes + Load<std::uint16_t>(entry, 32);
    if (!entry.text().starts_with("PK\x01\x02") || all > entries.size_bytes() - at) {
      return Damaged(archive, "entry ", members.size(), " of its directory is not one");
    }
    ZipMember member = {.name = std::string(entries.text().substr(at + kEntryBytes, name_bytes)),
                        .offset_bytes = Load<std::uint32_t>(entry, 42),
                        .packed_bytes = Load<std::uint32_t>(entry, 20),
                        .size_bytes = Load<std::uint32_t>(entry, 24),
                        .crc32 = Load<std::uint32_t>(entry, 16)};
    const auto method = Load<std::uint16_t>(entry, 10);
    if ((Load<std::uint16_t>(entry, 8) & 1) != 0) {
      return UnimplementedError("zip archive ", archive.info().url, ": \"", member.name,
                                "\" is encrypted");
    }
    if (method != 0 && method != 8) {
      return UnimplementedError("zip archive ", archive.info().url, ": \"", member.name,
                                "\" is compressed by method ", method,
                                "; stored and deflated members are read");
    }
    member.is_deflated = method == 8;
    std::vector<std::int64_t*> full;
    for (std::int64_t* size : {&member.size_bytes, &member.packed_bytes, &member.offset_bytes}) {
      if (*size == kFull32) full.push_back(size);
    }
    if (!ReadExtra64(entries.text().substr(at + kEntryBytes + name_bytes, extra_bytes), full)) {
      return Damaged(archive, "the sizes of \"", member.name, "\" are not there");
    }
    if (!member.is_deflated && member.packed_bytes != member.size_bytes) {
      return Damaged(archive, "\"", member.name, "\" is stored but has two sizes");
    }
    if (!names.insert(member.name).second) {
      return Damaged(archive, "\"", member.name, "\" is there twice");
    }
    AIT_RETURN_IF_ERROR(FindContents(archive, member, directory.offset_bytes));
    members.push_back(std::move(member));
    at += all;
  }
  if (static_cast<std::int64_t>(members.size()) != directory.members) {
    return Damaged(archive, "it has ", members.size(), " members, its end record says ",
                   directory.members);
  }
  return members;
}

StatusOr<std::shared_ptr<const StoredObject>> OpenZipMember(
    std::shared_ptr<const StoredObject> archive, const ZipMember& member,
    std::int64_t limit_bytes) {
  const StoredObject& whole = *archive;
  std::shared_ptr<const StoredObject> contents =
      std::make_shared<Part>(archive, member.offset_bytes, member.packed_bytes, member.name);
  if (member.is_deflated) {
    // Deflate packs at most 1032 to 1; a size beyond that is a lie, not a reason to take memory.
    if (member.size_bytes > limit_bytes) {
      return ResourceExhaustedError(contents->info().url, " unpacks to ", member.size_bytes,
                                    " bytes, allowed are ", limit_bytes, " (max_unpacked_bytes)");
    }
    if (member.size_bytes / 1040 > member.packed_bytes) {
      return Damaged(whole, "\"", member.name, "\" cannot unpack to ", member.size_bytes, " bytes");
    }
    AIT_ASSIGN_OR_RETURN(const ByteView packed,
                         ReadRange(*contents, 0, member.packed_bytes, member.packed_bytes));
    const auto size = static_cast<std::size_t>(member.size_bytes);
    auto bytes = std::make_shared_for_overwrite<std::byte[]>(size);
    const std::span<std::byte> out(bytes.get(), size);
    if (!Inflate(packed.bytes(), out)) {
      return Damaged(whole, "\"", member.name, "\" does not unpack to its ", size, " bytes");
    }
    contents =
        MemoryObject(contents->info().url, ByteView(out, std::move(bytes)), whole.info().version);
  }
  AIT_ASSIGN_OR_RETURN(const std::uint32_t crc, Crc32Of(*contents));
  if (crc != member.crc32) {
    return Damaged(whole, "the CRC-32 of \"", member.name, "\" is ", crc, ", its header says ",
                   member.crc32);
  }
  return contents;
}

}  // namespace internal
}  // namespace ait::inline v0

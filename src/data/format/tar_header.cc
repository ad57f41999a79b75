// SPDX-License-Identifier: Apache-2.0
#include "data/format/tar_header_internal.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <optional>

namespace ait::inline v0::internal {
namespace {

// Longest pax header and longest GNU name that are believed.
constexpr std::int64_t kMaxPaxBytes = std::int64_t{1} << 20;
constexpr std::int64_t kMaxNameBytes = std::int64_t{1} << 16;
// Longest headers of one member together.
constexpr std::int64_t kMaxHeaderBytes = std::int64_t{4} << 20;

std::string_view Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// A text field: up to the first zero byte, or all of it.
std::string_view Field(std::string_view block, std::size_t offset, std::size_t length) {
  const std::string_view field = block.substr(offset, length);
  const void* end = std::memchr(field.data(), 0, field.size());
  return end == nullptr
             ? field
             : field.substr(0,
                            static_cast<std::size_t>(static_cast<const char*>(end) - field.data()));
}

bool IsZeroBlock(std::span<const std::byte> block) {
  std::uint64_t any = 0;
  for (std::size_t i = 0; i < block.size(); i += 8) {
    std::uint64_t word;
    std::memcpy(&word, block.data() + i, 8);
    any |= word;
  }
  return any == 0;
}

// As some old writers add it up, by signed characters.
std::int64_t SignedChecksum(std::string_view block) {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < block.size(); ++i) {
    sum += i >= 148 && i < 156 ? ' ' : static_cast<signed char>(block[i]);
  }
  return sum;
}

Status CheckChecksum(std::span<const std::byte> block) {
  AIT_ASSIGN_OR_RETURN(const std::int64_t stored,
                       ParseTarNumber(Text(block).substr(148, 8), "checksum"));
  const std::uint32_t sum = TarChecksum(block);
  if (stored == sum || stored == SignedChecksum(Text(block))) return OkStatus();
  return DataLossError("the checksum of a tar header is ", stored, ", its bytes add up to ", sum,
                       ": damaged, or no tar header");
}

}  // namespace

// What the headers before the one of a member say about it.
struct TarParser::Extras {
  std::optional<std::string_view> name;
  std::optional<std::string_view> link;
  std::optional<std::int64_t> size;
  // Of a sparse file, whose own header and "path" name what GNU tar made up for it.
  std::optional<std::string_view> sparse_name;
  bool is_sparse = false;
};

std::uint32_t TarChecksum(std::span<const std::byte> block) {
  // Sums of bytes in the 16-bit lanes of a word: 128 of at most 255 fit.
  std::uint64_t lanes = 0;
  constexpr std::uint64_t kLow = 0x00ff00ff00ff00ffu;
  for (std::size_t i = 0; i < kTarBlock; i += 8) {
    std::uint64_t word;
    std::memcpy(&word, block.data() + i, 8);
    lanes += (word & kLow) + ((word >> 8) & kLow);
  }
  std::uint32_t sum = 0;
  for (int lane = 0; lane < 4; ++lane) sum += (lanes >> (16 * lane)) & 0xffffu;
  for (std::size_t i = 148; i < 156; ++i) sum -= static_cast<std::uint32_t>(block[i]);
  return sum + 8 * ' ';
}

StatusOr<std::int64_t> ParseTarNumber(std::string_view field, std::string_view what) {
  const auto first = static_cast<unsigned char>(field[0]);
  if ((first & 0x80u) != 0) {
    // GNU: big-endian, two's complement, the first bit is the mark.
    if (first != 0x80u) return DataLossError("the ", what, " of a tar header is below zero");
    std::uint64_t value = 0;
    for (const char c : field.substr(1)) {
      if (value >> 48 != 0) return DataLossError("the ", what, " of a tar header is too large");
      value = value << 8 | static_cast<unsigned char>(c);
    }
    return static_cast<std::int64_t>(value);
  }
  std::size_t i = 0;
  while (i < field.size() && field[i] == ' ') ++i;
  std::uint64_t value = 0;
  const std::size_t begin = i;
  while (i < field.size() && field[i] >= '0' && field[i] <= '7') {
    value = value << 3 | static_cast<std::uint64_t>(field[i++] - '0');
  }
  const bool has_digits = i > begin;
  while (i < field.size() && (field[i] == '\0' || field[i] == ' ')) ++i;
  if (!has_digits || i < field.size()) {
    return DataLossError("the ", what, " of a tar header is no octal number");
  }
  return static_cast<std::int64_t>(value);
}

Status TarParser::TakePaxRecords(std::string_view records, bool is_global, Extras& extras) const {
  const auto bad = [](std::string_view why) { return DataLossError("bad pax header: ", why); };
  while (!records.empty()) {
    // "<length> <key>=<value>\n", where the length counts itself and all the rest.
    std::size_t length = 0;
    const char* end = records.data() + std::min<std::size_t>(records.size(), 9);
    const auto [rest, error] = std::from_chars(records.data(), end, length);
    const auto digits = static_cast<std::size_t>(rest - records.data());
    if (error != std::errc() || digits == records.size() || *rest != ' ') {
      return bad("a record without a length");
    }
    if (length > records.size() || length < digits + 3 || records[length - 1] != '\n') {
      return bad("the length of a record is not that of its text");
    }
    const std::string_view record = records.substr(digits + 1, length - digits - 2);
    records.remove_prefix(length);
    const std::size_t equals = record.find('=');
    if (equals == std::string_view::npos || equals == 0) return bad("a record without a name");
    const std::string_view key = record.substr(0, equals);
    const std::string_view value = record.substr(equals + 1);
    const bool is_sparse = key.starts_with("GNU.sparse.");
    if (key != "path" && key != "linkpath" && key != "size" && !is_sparse) continue;
    if (is_global) {
      return InvalidArgumentError("a global pax header sets ", key,
                                  " for all members after it, which is not read");
    }
    extras.is_sparse = extras.is_sparse || is_sparse;
    if (key == "path" || key == "linkpath" || key == "GNU.sparse.name") {
      if (value.find('\0') != std::string_view::npos) return bad("a name with a zero byte");
      // No value takes back what was set.
      auto& target = is_sparse ? extras.sparse_name : key == "path" ? extras.name : extras.link;
      target = value.empty() ? std::nullopt : std::optional(value);
    } else if (key == "size") {
      std::int64_t size = 0;
      const auto parsed = std::from_chars(value.data(), value.data() + value.size(), size);
      if (parsed.ec != std::errc() || parsed.ptr != value.data() + value.size() || size < 0 ||
          size > kMaxTarSize) {
        return bad("a size that is none");
      }
      extras.size = size;
    }
  }
  return OkStatus();
}

StatusOr<TarStep> TarParser::Parse(std::span<const std::byte> bytes, TarMember& member) {
  Extras extras;
  std::int64_t at = 0;
  while (true) {
    need_bytes_ = at + kTarBlock;
    if (static_cast<std::int64_t>(bytes.size()) < need_bytes_) return TarStep::kNeedBytes;
    const auto block = bytes.subspan(static_cast<std::size_t>(at), kTarBlock);
    const std::string_view text = Text(block);
    if (text[0] == '\0' && IsZeroBlock(block)) {
      if (at == 0) return TarStep::kZeroBlock;
      return DataLossError("the archive ends between the headers of a member");
    }
    AIT_RETURN_IF_ERROR(CheckChecksum(block));
    const char type = text[156];
    std::int64_t size = 0;
    if (type < '1' ||
        type > '6') {  // links, devices and directories have no data, whatever it says
      AIT_ASSIGN_OR_RETURN(size, ParseTarNumber(text.substr(124, 12), "size"));
      if (size > kMaxTarSize) return DataLossError("a tar header says ", size, " bytes");
    }

    if (type == 'x' || type == 'g' || type == 'L' || type == 'K') {
      const bool is_name = type == 'L' || type == 'K';
      const std::int64_t limit = is_name ? kMaxNameBytes : kMaxPaxBytes;
      if (size > limit) {
        return DataLossError("a header of type ", type, " has ", size, " bytes, at most ", limit,
                             " are believed");
      }
      need_bytes_ = at + kTarBlock + TarPadded(size);
      if (static_cast<std::int64_t>(bytes.size()) < need_bytes_) return TarStep::kNeedBytes;
      const std::string_view data = Text(
          bytes.subspan(static_cast<std::size_t>(at + kTarBlock), static_cast<std::size_t>(size)));
      if (is_name) {
        const std::string_view name = Field(data, 0, data.size());
        if (name.empty()) return DataLossError("a header of type ", type, " holds no name");
        (type == 'L' ? extras.name : extras.link) = name;
      } else {
        AIT_RETURN_IF_ERROR(TakePaxRecords(data, type == 'g', extras));
      }
      at = need_bytes_;
      if (at > kMaxHeaderBytes) {
        return DataLossError("the headers before a member have more than ", kMaxHeaderBytes,
                             " bytes: damaged");
      }
      if (type != 'g') continue;
      if (at != kTarBlock + TarPadded(size)) {
        return DataLossError("a global pax header between the headers of a member");
      }
      member = {.kind = TarKind::kDirectory, .header_bytes = at};
      return TarStep::kMember;
    }

    member.name = Field(text, 0, 100);
    member.link = Field(text, 157, 100);
    member.refusal = {};
    member.header_bytes = at + kTarBlock;
    member.size_bytes = size;
    // The prefix is POSIX; GNU has other things in its place.
    if (text[345] != '\0' && std::memcmp(text.data() + 257, "ustar", 6) == 0 && !extras.name) {
      scratch_.assign(Field(text, 345, 155));
      scratch_ += '/';
      scratch_ += member.name;
      member.name = scratch_;
    }
    if (extras.name) member.name = *extras.name;
    if (extras.sparse_name) member.name = *extras.sparse_name;
    if (extras.link) member.link = *extras.link;
    switch (type) {
      case '0':
      case '\0':
      case '7':
        member.kind = TarKind::kFile;
        if (type == '\0' && member.name.ends_with('/')) member.kind = TarKind::kDirectory;  // V7
        break;
      case '1':
        member.kind = TarKind::kHardLink;
        break;
      case '5':
      case 'V':  // the label of a volume
        member.kind = TarKind::kDirectory;
        break;
      case 'D':  // a directory with the list of what is in it
        member.kind = TarKind::kDirectory;
        break;
      default:
        member.kind = TarKind::kRefused;
        member.refusal = type == '2'                  ? "a symbolic link"
                         : type == 'S'                ? "a sparse file"
                         : type >= '3' && type <= '6' ? "a device"
                         : type == 'M'                ? "continued from another volume"
                                                      : "of an unknown type";
        break;
    }
    if (extras.size && (type < '1' || type > '6')) member.size_bytes = *extras.size;
    if (extras.is_sparse) {
      member.kind = TarKind::kRefused;
      member.refusal = "a sparse file";
    }
    if (type == 'S' && text[482] != '\0') {
      // The map of its holes goes on in blocks that its size does not count.
      return InvalidArgumentError("'", member.name, "' is a sparse file of many parts");
    }
    return TarStep::kMember;
  }
}

}  // namespace ait::inline v0::internal

// SPDX-License-Identifier: Apache-2.0
#include "data/format/tar_write_internal.h"

#include <charconv>
#include <cstring>
#include <span>

#include "ait/base/status.h"
#include "data/format/tar_header_internal.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::int64_t kMaxOctal11 = (std::int64_t{1} << 33) - 1;
constexpr std::size_t kNameBytes = 100;
constexpr std::size_t kPrefixBytes = 155;

// `digits` octal digits and a zero byte.
void PutOctal(char* at, int digits, std::int64_t value) {
  for (int i = digits - 1; i >= 0; --i) {
    at[i] = static_cast<char>('0' + (value & 7));
    value >>= 3;
  }
  at[digits] = '\0';
}

// Where a long name is cut into prefix and name: the last slash that leaves both short enough.
std::size_t SplitAt(std::string_view name) {
  if (name.size() > kPrefixBytes + 1 + kNameBytes) return std::string_view::npos;
  const std::size_t slash = name.substr(0, kPrefixBytes + 1).rfind('/');
  if (slash == std::string_view::npos || slash == 0 || name.size() - slash - 1 > kNameBytes ||
      slash + 1 == name.size()) {
    return std::string_view::npos;
  }
  return slash;
}

void AppendBlock(std::string& out, std::string_view prefix, std::string_view name, char type,
                 std::int64_t size, std::int64_t time) {
  const std::size_t begin = out.size();
  out.resize(begin + kTarBlock, '\0');
  char* block = out.data() + begin;
  std::memcpy(block, name.data(), name.size());
  PutOctal(block + 100, 7, 0644);
  PutOctal(block + 108, 7, 0);
  PutOctal(block + 116, 7, 0);
  PutOctal(block + 124, 11, size);
  PutOctal(block + 136, 11, time);
  block[156] = type;
  std::memcpy(block + 257, "ustar\00000", 8);
  if (type == '0') {  // numbers of the device
    PutOctal(block + 329, 7, 0);
    PutOctal(block + 337, 7, 0);
  }
  std::memcpy(block + 345, prefix.data(), prefix.size());
  const std::uint32_t sum = TarChecksum(std::as_bytes(std::span(block, kTarBlock)));
  PutOctal(block + 148, 6, sum);
  block[155] = ' ';
}

// "<length> <key>=<value>\n"; the length counts its own digits.
void AppendRecord(std::string& out, std::string_view key, std::string_view value) {
  const std::size_t rest = key.size() + value.size() + 3;
  std::size_t length = rest + 1;
  while (StrCat(length).size() + rest != length) length = StrCat(length).size() + rest;
  out += StrCat(length, " ", key, "=", value, "\n");
}

}  // namespace

void AppendTarHeaders(std::string& out, std::string_view name, std::int64_t size_bytes,
                      std::int64_t modification_time) {
  std::string records;
  std::string_view prefix;
  std::string_view base = name;
  if (name.size() > kNameBytes) {
    if (const std::size_t cut = SplitAt(name); cut != std::string_view::npos) {
      prefix = name.substr(0, cut);
      base = name.substr(cut + 1);
    } else {
      AppendRecord(records, "path", name);
      base = name.substr(0, kNameBytes);
    }
  }
  if (size_bytes > kMaxOctal11) AppendRecord(records, "size", StrCat(size_bytes));
  if (!records.empty()) {
    const std::size_t slash = name.rfind('/');
    const std::string_view file = slash == std::string_view::npos ? name : name.substr(slash + 1);
    const std::string_view directory =
        slash == std::string_view::npos ? "." : name.substr(0, slash);
    const std::string shown = StrCat(directory, "/PaxHeaders/", file).substr(0, kNameBytes);
    AppendBlock(out, "", shown, 'x', static_cast<std::int64_t>(records.size()), modification_time);
    records.resize(static_cast<std::size_t>(TarPadded(static_cast<std::int64_t>(records.size()))),
                   '\0');
    out += records;
  }
  AppendBlock(out, prefix, base, '0', size_bytes > kMaxOctal11 ? 0 : size_bytes, modification_time);
}

}  // namespace ait::inline v0::internal

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "ait/data/crc32c.h"
#include "data/cache/stage_files_internal.h"
#include "data/json_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

using Json = nlohmann::json;

constexpr char kFormat[] = "ait staged files";
constexpr std::int64_t kVersion = 1;

// Names and versions are bytes; JSON must be UTF-8. "%41" stands for a byte.
std::string Escape(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c >= 0x20 && c < 0x7f && c != '%') {
      escaped += c;
    } else {
      escaped += '%';
      escaped += HexDigits(static_cast<unsigned char>(c), 2);
    }
  }
  return escaped;
}

int Digit(char c) {
  const std::size_t digit = std::string_view("0123456789abcdef").find(c);
  return digit == std::string_view::npos ? -1 : static_cast<int>(digit);
}

StatusOr<std::string> Unescape(std::string_view text) {
  std::string plain;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      plain += text[i];
      continue;
    }
    const int high = i + 2 < text.size() ? Digit(text[i + 1]) : -1;
    const int low = i + 2 < text.size() ? Digit(text[i + 2]) : -1;
    if (high < 0 || low < 0) return DataLossError("\"", text, "\" ends within %");
    plain += static_cast<char>(high * 16 + low);
    i += 2;
  }
  return plain;
}

std::uint32_t Checksum(Json json) {
  json.erase("checksum");
  const std::string text = json.dump();
  return Crc32c(std::as_bytes(std::span(text)));
}

StatusOr<std::vector<std::uint32_t>> ParseCrcs(std::string_view text) {
  if (text.size() % 8 != 0) return DataLossError("checksums are not of 8 digits each");
  std::vector<std::uint32_t> crcs;
  for (std::size_t i = 0; i < text.size(); i += 8) {
    std::uint32_t crc = 0;
    for (const char c : text.substr(i, 8)) {
      if (Digit(c) < 0) return DataLossError("checksums are not hexadecimal");
      crc = crc << 4 | static_cast<std::uint32_t>(Digit(c));
    }
    crcs.push_back(crc);
  }
  return crcs;
}

}  // namespace

std::int64_t StagedFile::PartLength(int part) const {
  return std::min(part_bytes, size_bytes - PartOffset(part));
}

std::string StagedToJson(const std::vector<StagedFile>& files,
                         const std::vector<StagedFile>& others) {
  Json list = Json::array();
  for (const auto* some : {&files, &others}) {
    for (const StagedFile& file : *some) {
      std::string crcs;
      for (const std::uint32_t crc : file.crcs) crcs += HexDigits(crc, 8);
      list.push_back({{"name", Escape(file.name)},
                      {"version", Escape(file.version)},
                      {"bytes", file.size_bytes},
                      {"part_bytes", file.part_bytes},
                      {"crc32c", crcs}});
    }
  }
  Json json = {{"format", kFormat}, {"version", kVersion}, {"files", std::move(list)}};
  json["checksum"] = HexDigits(Checksum(json), 8);
  return json.dump(1) + "\n";
}

StatusOr<std::vector<StagedFile>> StagedFromJson(std::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return DataLossError("not a JSON object");
  JsonReader reader;
  const std::string format = reader.Text(json, "format");
  const std::int64_t version = reader.Integer(json, "version");
  const std::uint64_t checksum = reader.Hex(json, "checksum", 8);
  if (!reader.complaint().empty()) return DataLossError(reader.complaint());
  if (format != kFormat || version != kVersion) {
    return DataLossError("the format is not \"", kFormat, "\" of version ", kVersion);
  }
  if (checksum != Checksum(json)) return DataLossError("the checksum does not fit");
  std::vector<StagedFile> files;
  for (const Json& item : reader.Array(json, "files")) {
    StagedFile file = {.size_bytes = reader.Integer(item, "bytes"),
                       .part_bytes = reader.Integer(item, "part_bytes")};
    AIT_ASSIGN_OR_RETURN(file.name, Unescape(reader.Text(item, "name")));
    AIT_ASSIGN_OR_RETURN(file.version, Unescape(reader.Text(item, "version")));
    AIT_ASSIGN_OR_RETURN(file.crcs, ParseCrcs(reader.Text(item, "crc32c")));
    if (!reader.complaint().empty()) return DataLossError(reader.complaint());
    if (file.part_bytes < 1 || (file.size_bytes + file.part_bytes - 1) / file.part_bytes !=
                                   static_cast<std::int64_t>(file.crcs.size())) {
      return DataLossError("the checksums of ", file.name, " are not one for each part");
    }
    files.push_back(std::move(file));
  }
  return files;
}

}  // namespace internal
}  // namespace ait::inline v0

// SPDX-License-Identifier: Apache-2.0
#include "data/manifest_internal.h"

#include <utility>

#include "ait/data/crc32c.h"
#include "data/input_file_internal.h"
#include "data/json_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

using Json = nlohmann::json;

constexpr char kFormat[] = "ait packed corpus";
constexpr std::int64_t kVersion = 1;
constexpr std::int64_t kMaxManifestBytes = std::int64_t{1} << 28;

// File names need not be UTF-8; JSON must be.
std::string Dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

// Of everything but the checksum itself, without white space, keys sorted.
std::uint32_t Checksum(Json json) {
  json.erase("checksum");
  const std::string text = Dump(json, -1);
  return Crc32c(std::as_bytes(std::span(text)));
}

}  // namespace

std::string ToJson(const Manifest& manifest) {
  Json sources = Json::array();
  for (const Manifest::Source& source : manifest.sources) {
    sources.push_back(
        {{"name", source.name}, {"bytes", source.bytes}, {"crc32c", HexDigits(source.crc32c, 8)}});
  }
  Json shards = Json::array();
  for (const Manifest::Shard& shard : manifest.shards) {
    shards.push_back(
        {{"file", shard.file}, {"tokens", shard.tokens}, {"crc32c", HexDigits(shard.crc32c, 8)}});
  }
  Json json = {
      {"format", kFormat},
      {"version", kVersion},
      {"tokenizer", manifest.tokenizer},
      {"dtype", std::string(Name(manifest.dtype))},
      {"vocabulary_size", manifest.vocabulary_size},
      {"separator", manifest.separator},
      {"documents", manifest.documents},
      {"tokens", manifest.tokens},
      {"crc32c", HexDigits(manifest.crc32c, 8)},
      {"shard_tokens", manifest.shard_tokens},
      {"sources", std::move(sources)},
      {"shards", std::move(shards)},
  };
  // The text that is read back has its replaced characters already.
  json = Json::parse(Dump(json, -1));
  json["checksum"] = HexDigits(Checksum(json), 8);
  return Dump(json, 2) + "\n";
}

StatusOr<Manifest> ManifestFromJson(std::string_view text) {
  const Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return DataLossError("not a JSON object");
  JsonReader reader;
  const std::string format = reader.Text(json, "format");
  const std::int64_t version = reader.Integer(json, "version");
  const std::uint64_t checksum = reader.Hex(json, "checksum", 8);
  if (!reader.complaint().empty()) return DataLossError(reader.complaint());
  if (format != kFormat) return DataLossError("the format is not \"", kFormat, "\"");
  if (version != kVersion) {
    return UnimplementedError("version ", version, " is not known, only ", kVersion);
  }
  if (checksum != Checksum(json)) {
    return DataLossError("the checksum does not fit: damaged, or edited by hand");
  }

  Manifest manifest = {
      .tokenizer = reader.Text(json, "tokenizer"),
      .vocabulary_size = reader.Integer(json, "vocabulary_size"),
      .separator = reader.Integer(json, "separator"),
      .documents = reader.Integer(json, "documents"),
      .tokens = reader.Integer(json, "tokens"),
      .crc32c = static_cast<std::uint32_t>(reader.Hex(json, "crc32c", 8)),
      .shard_tokens = reader.Integer(json, "shard_tokens"),
  };
  const std::optional<DType> dtype = DTypeFromName(reader.Text(json, "dtype"));
  if (!dtype.has_value()) return DataLossError("\"dtype\" is not known");
  manifest.dtype = *dtype;
  for (const Json& source : reader.Array(json, "sources")) {
    manifest.sources.push_back({reader.Text(source, "name"), reader.Integer(source, "bytes"),
                                static_cast<std::uint32_t>(reader.Hex(source, "crc32c", 8))});
  }
  std::int64_t tokens = 0;
  for (const Json& shard : reader.Array(json, "shards")) {
    manifest.shards.push_back({reader.Text(shard, "file"), reader.Integer(shard, "tokens"),
                               static_cast<std::uint32_t>(reader.Hex(shard, "crc32c", 8))});
    const Manifest::Shard& added = manifest.shards.back();
    if (added.file.empty() || added.file.front() == '.' ||
        added.file.find('/') != std::string::npos) {
      return DataLossError("shard \"", added.file, "\" is not a plain file name");
    }
    if (added.tokens > manifest.tokens - tokens) {
      return DataLossError("the shards hold more than the ", manifest.tokens, " tokens stated");
    }
    tokens += added.tokens;
  }
  if (!reader.complaint().empty()) return DataLossError(reader.complaint());
  if (tokens != manifest.tokens) {
    return DataLossError("the shards hold ", tokens, " tokens, stated are ", manifest.tokens);
  }
  return manifest;
}

StatusOr<Manifest> ReadManifest(const std::string& directory) {
  const std::string path = StrCat(directory, "/", kManifestName);
  AIT_ASSIGN_OR_RETURN(const std::string text, ReadSmallFile(path, kMaxManifestBytes));
  StatusOr<Manifest> manifest = ManifestFromJson(text);
  if (!manifest.ok()) return Annotate(manifest.status(), path);
  return manifest;
}

}  // namespace internal
}  // namespace ait::inline v0

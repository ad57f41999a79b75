// SPDX-License-Identifier: Apache-2.0
// A directory of MDS shards with its index.json, version 2: for each shard its file, the compressed
// one or both, with sizes and hashes.
#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>

#include "ait/base/durable_file.h"
#include "ait/data/decode/compress.h"
#include "ait/data/format/mds.h"
#include "data/format/file_object_internal.h"
#include "data/format/format_entry_internal.h"
#include "data/format/index_json_internal.h"
#include "data/format/mds_internal.h"
#include "data/format/shard_list_internal.h"
#include "data/json_internal.h"
#include "data/mix_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

struct MdsFile {
  std::string url;
  std::int64_t size_bytes = 0;
  nlohmann::json hashes;
};

struct MdsEntry {
  MdsFile file;  // what is read
  Compression compression = Compression::kNone;
  MdsFile raw;  // what it unpacks to
  std::int64_t samples = 0;
};

StatusOr<Compression> CompressionNamed(std::string name) {
  name = name.substr(0, name.find(':'));
  if (name == "zstd") return Compression::kZstd;
  if (name == "gz") return Compression::kGzip;
  return UnimplementedError("the compression ", name, " is not read; zstd and gz are");
}

StatusOr<MdsFile> ParseFile(const nlohmann::json& entry, const std::string& directory) {
  JsonReader reader;
  const std::string name = reader.Text(entry, "basename");
  MdsFile file = {.url = directory + name, .size_bytes = reader.Integer(entry, "bytes")};
  if (!reader.complaint().empty()) return DataLossError(reader.complaint());
  if (!IsNameBelow(name)) {
    return DataLossError("the name \"", name, "\" leads out of the directory");
  }
  const auto hashes = entry.find("hashes");
  if (hashes != entry.end() && hashes->is_object()) file.hashes = *hashes;
  return file;
}

StatusOr<MdsEntry> ParseEntry(const nlohmann::json& entry, const std::string& directory,
                              const std::set<std::string_view>& there) {
  AIT_RETURN_IF_ERROR(ParseMdsColumns(entry).status());
  JsonReader reader;
  MdsEntry shard = {.samples = reader.Integer(entry, "samples")};
  const auto raw = entry.find("raw_data");
  if (!reader.complaint().empty()) return DataLossError(reader.complaint());
  if (raw == entry.end() || !raw->is_object()) return DataLossError("\"raw_data\" is no object");
  AIT_ASSIGN_OR_RETURN(shard.raw, ParseFile(*raw, directory));
  shard.file = shard.raw;
  const auto zip = entry.find("zip_data");
  if (zip == entry.end() || zip->is_null() || there.contains(shard.raw.url)) return shard;
  if (!zip->is_object()) return DataLossError("\"zip_data\" is no object");
  AIT_ASSIGN_OR_RETURN(shard.file, ParseFile(*zip, directory));
  AIT_ASSIGN_OR_RETURN(shard.compression, CompressionNamed(reader.Text(entry, "compression")));
  return shard;
}

Status CheckFile(const StoredObject& object, const MdsFile& stated) {
  if (object.info().size_bytes != stated.size_bytes) {
    return DataLossError(stated.url, " has ", object.info().size_bytes, " bytes, the index says ",
                         stated.size_bytes);
  }
  return CheckHashes(object, stated.hashes);
}

StatusOr<std::unique_ptr<ShardReader>> OpenEntry(const Storage& storage, const MdsEntry& entry,
                                                 bool is_checked, const ShardOptions& options) {
  AIT_ASSIGN_OR_RETURN(auto object, storage.Open(entry.file.url));
  const bool is_packed = entry.compression != Compression::kNone;
  if (!is_checked) {
    AIT_RETURN_IF_ERROR(CheckFile(*object, entry.file));
  } else if (object->info().size_bytes != entry.file.size_bytes) {
    return DataLossError(entry.file.url, " has changed since it was opened first");
  }
  if (is_packed) {
    if (entry.raw.size_bytes > options.max_unpacked_bytes) {
      return ResourceExhaustedError(entry.file.url, " unpacks to ", entry.raw.size_bytes,
                                    " bytes, allowed are ", options.max_unpacked_bytes,
                                    " (max_unpacked_bytes)");
    }
    AIT_ASSIGN_OR_RETURN(object, Unpack(*object, entry.compression, Bytes(entry.raw.size_bytes)));
    AIT_RETURN_IF_ERROR(CheckFile(*object, entry.raw));
  }
  return OpenMdsShard(std::move(object), options);
}

bool MatchCollection(std::span<const ObjectInfo> objects) {
  return FindIndexJson(objects) != nullptr &&
         std::any_of(objects.begin(), objects.end(),
                     [](const ObjectInfo& object) { return HasExtension(object.url, ".mds"); });
}

StatusOr<std::shared_ptr<const SampleSource>> OpenCollection(std::shared_ptr<const Storage> storage,
                                                             const std::string& url,
                                                             std::span<const ObjectInfo> objects,
                                                             const SamplesOptions& options) {
  AIT_ASSIGN_OR_RETURN(const IndexJson index, ReadIndexJson(*storage, url, objects));
  const auto version = index.json.find("version");
  const auto list = index.json.find("shards");
  if (version == index.json.end() || *version != 2) {
    return UnimplementedError("MDS index of ", url, ": only version 2 is known");
  }
  if (list == index.json.end() || !list->is_array()) {
    return DataLossError("MDS index of ", url, ": \"shards\" is no list");
  }
  std::set<std::string_view> there;
  for (const ObjectInfo& object : objects) there.insert(object.url);
  auto entries = std::make_shared<std::vector<MdsEntry>>();
  std::vector<ListedShard> listed;
  std::int64_t total = 0;
  for (const nlohmann::json& item : *list) {
    StatusOr<MdsEntry> entry = ParseEntry(item, index.directory, there);
    if (!entry.ok()) {
      return Annotate(entry.status(), StrCat("MDS index of ", url, ", shard ", entries->size()));
    }
    if (__builtin_add_overflow(total, entry->samples, &total)) {
      return DataLossError("MDS index of ", url, " has more samples than can be numbered");
    }
    listed.push_back({.url = entry->file.url,
                      .sample_count = entry->samples,
                      .size_bytes = entry->raw.size_bytes,
                      .held_bytes = entry->compression == Compression::kNone
                                        ? 4 * entry->samples
                                        : entry->raw.size_bytes});
    entries->push_back(*std::move(entry));
  }
  // Hashes are compared once: a shard that is opened again has been read before.
  auto checked = std::make_shared<std::vector<std::atomic<bool>>>(entries->size());
  return SourceOfShards({.name = url,
                         .digest = Fold(static_cast<std::uint64_t>(total), index.crc32c),
                         .version = VersionOf(objects)},
                        std::move(listed),
                        [storage, entries, checked, shard_options = options.shard](
                            std::size_t i) -> StatusOr<std::unique_ptr<ShardReader>> {
                          AIT_ASSIGN_OR_RETURN(auto shard, OpenEntry(*storage, (*entries)[i],
                                                                     (*checked)[i], shard_options));
                          (*checked)[i] = true;
                          return shard;
                        });
}

}  // namespace

extern const CollectionFormat kMdsCollection;
const CollectionFormat kMdsCollection = {.name = "mds-index",
                                         .summary = "MosaicML Streaming data set",
                                         .match = MatchCollection,
                                         .open = OpenCollection};

}  // namespace internal

Status WriteMdsIndex(const std::string& directory, std::span<const std::string> names) {
  nlohmann::json shards = nlohmann::json::array();
  for (const std::string& name : names) {
    if (!internal::IsNameBelow(name) || name.find('/') != std::string::npos) {
      return InvalidArgumentError("\"", name, "\" is no name of a file in ", directory);
    }
    AIT_ASSIGN_OR_RETURN(const auto object, internal::OpenFileObject(directory + "/" + name));
    AIT_ASSIGN_OR_RETURN(internal::MdsHeader header, internal::ReadMdsHeader(*object));
    nlohmann::json entry = std::move(header.config);
    entry["raw_data"] = {{"basename", name},
                         {"bytes", object->info().size_bytes},
                         {"hashes", nlohmann::json::object()}};
    entry["samples"] = header.offsets.size() - 1;
    entry["zip_data"] = nullptr;
    shards.push_back(std::move(entry));
  }
  return WriteFileDurably(directory + "/index.json",
                          internal::PythonJson({{"shards", std::move(shards)}, {"version", 2}}));
}

}  // namespace ait::inline v0

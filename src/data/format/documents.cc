// SPDX-License-Identifier: Apache-2.0
#include "data/format/documents_internal.h"

#include <cstring>
#include <map>
#include <utility>

#include "ait/data/crc32c.h"
#include "data/format/format_entry_internal.h"
#include "data/format/format_util_internal.h"
#include "data/format/shard_list_internal.h"
#include "data/formats_internal.h"
#include "data/little_endian_internal.h"
#include "data/megatron_index_internal.h"
#include "data/mix_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

class DocumentShard final : public ShardReader {
 public:
  DocumentShard(std::string_view format, std::shared_ptr<const StoredObject> object,
                std::int64_t offset_bytes, DType dtype, std::vector<std::int64_t> begins,
                std::int64_t max_record_bytes)
      : format_(format),
        object_(std::move(object)),
        offset_bytes_(offset_bytes),
        dtype_(dtype),
        begins_(std::move(begins)),
        max_record_bytes_(max_record_bytes) {}

  std::string_view format() const override { return format_; }
  const StoredObject& object() const override { return *object_; }
  std::int64_t record_count() const override {
    return static_cast<std::int64_t>(begins_.size()) - 1;
  }
  RecordExtent extent(std::int64_t record) const override {
    const auto at = static_cast<std::size_t>(record);
    const std::int64_t size = SizeOf(dtype_);
    return {.offset_bytes = offset_bytes_ + begins_[at] * size,
            .length_bytes = (begins_[at + 1] - begins_[at]) * size};
  }

  Status Decode(std::int64_t record, const ByteView& bytes, Sample& sample) const override {
    const auto size = static_cast<std::int64_t>(bytes.size_bytes());
    if (size > max_record_bytes_) {
      return InvalidArgumentError(DescribeRecord(*this, record), " has ", size,
                                  " bytes, allowed are ", max_record_bytes_, " (max_record_bytes)");
    }
    const std::int64_t count = size / SizeOf(dtype_);
    SampleBuilder builder(sample);
    builder.SetKey(record);
    AIT_RETURN_IF_ERROR(builder.AddArray("tokens", {.dtype = dtype_}, std::span(&count, 1), bytes));
    builder.Finish();
    return OkStatus();
  }

 private:
  const std::string_view format_;
  const std::shared_ptr<const StoredObject> object_;
  const std::int64_t offset_bytes_;
  const DType dtype_;
  const std::vector<std::int64_t> begins_;
  const std::int64_t max_record_bytes_;
};

// llm.c: a document begins at every end-of-text token. One scan finds them.

template <typename Token>
StatusOr<std::vector<std::int64_t>> FindDocuments(const StoredObject& object,
                                                  const LlmcHeader& header) {
  std::vector<std::int64_t> begins;
  std::int64_t token = 0;
  AIT_ASSIGN_OR_RETURN(const auto blocks, object.Stream({.offset_bytes = kLlmcHeaderBytes}));
  while (true) {
    AIT_ASSIGN_OR_RETURN(const ByteView block, blocks->Next());
    if (block.is_empty()) break;
    if (block.size_bytes() % sizeof(Token) != 0) {
      return InternalError(object.info().url, ": a block of ", block.size_bytes(), " bytes");
    }
    for (std::size_t at = 0; at < block.size_bytes(); at += sizeof(Token), ++token) {
      Token value;
      std::memcpy(&value, block.data() + at, sizeof(Token));
      if (value == header.end_of_text || token == 0) begins.push_back(token);
    }
  }
  begins.push_back(token);
  return begins;
}

int MatchLlmc(std::string_view, std::span<const std::byte> head) {
  return head.size() >= 12 && IsLlmcMagic(LoadLittleEndian<std::int32_t>(head, 0)) ? 2 : 0;
}

StatusOr<std::unique_ptr<ShardReader>> OpenLlmcShard(std::shared_ptr<const StoredObject> object,
                                                     const ShardOptions& options,
                                                     std::shared_ptr<const StoredObject>) {
  AIT_ASSIGN_OR_RETURN(const ByteView start, ReadRange(*object, 0, 12, 12));
  const StatusOr<LlmcHeader> header = ParseLlmcHeader(start.bytes(), object->info().size_bytes);
  if (!header.ok()) return Annotate(header.status(), StrCat("llm.c file ", object->info().url));
  AIT_ASSIGN_OR_RETURN(std::vector<std::int64_t> begins,
                       header->dtype == DType::kUInt16
                           ? FindDocuments<std::uint16_t>(*object, *header)
                           : FindDocuments<std::uint32_t>(*object, *header));
  return ShardOfDocuments("llmc", std::move(object), kLlmcHeaderBytes, header->dtype,
                          std::move(begins), options);
}

// Megatron: PREFIX.idx says where the documents of PREFIX.bin lie.

struct TokenPair {
  const ObjectInfo* index = nullptr;
  const ObjectInfo* tokens = nullptr;
};

std::vector<TokenPair> PairsOf(std::span<const ObjectInfo> objects) {
  std::map<std::string_view, const ObjectInfo*> tokens;  // by their names without ".bin"
  for (const ObjectInfo& object : objects) {
    const std::string_view url = object.url;
    if (url.ends_with(".bin")) tokens.emplace(url.substr(0, url.size() - 4), &object);
  }
  std::vector<TokenPair> pairs;
  for (const ObjectInfo& index : objects) {
    const std::string_view url = index.url;
    if (tokens.empty() || !url.ends_with(".idx")) continue;
    const auto found = tokens.find(url.substr(0, url.size() - 4));
    if (found != tokens.end()) pairs.push_back({&index, found->second});
  }
  return pairs;
}

bool MatchMegatron(std::span<const ObjectInfo> objects) { return !PairsOf(objects).empty(); }

struct Documents {
  std::string url;
  DType dtype = DType::kUInt16;
  std::vector<std::int64_t> begins;
};

StatusOr<std::shared_ptr<const SampleSource>> OpenMegatronPairs(
    std::shared_ptr<const Storage> storage, const std::string& url,
    std::span<const ObjectInfo> objects, const SamplesOptions& options) {
  auto all = std::make_shared<std::vector<Documents>>();
  std::vector<ListedShard> listed;
  std::uint64_t digest = 0;
  for (const TokenPair& pair : PairsOf(objects)) {
    AIT_ASSIGN_OR_RETURN(const auto object, storage->Open(pair.index->url));
    Documents documents = {.url = pair.tokens->url};
    const StatusOr<MegatronIndex> index = ReadMegatronIndex(
        {.size_bytes = object->info().size_bytes,
         .read = [&](std::int64_t offset_bytes,
                     std::span<std::byte> out) { return object->ReadAt(offset_bytes, out); }},
        &documents.begins);
    if (!index.ok()) {
      return Annotate(index.status(), StrCat("Megatron index ", pair.index->url));
    }
    documents.dtype = index->dtype;
    const std::int64_t bytes = index->tokens * SizeOf(index->dtype);
    if (pair.tokens->size_bytes != bytes) {
      return DataLossError("Megatron file ", pair.tokens->url, " is truncated or too long: it has ",
                           pair.tokens->size_bytes, " bytes, its index states ", bytes);
    }
    if (!all->empty() && all->front().dtype != documents.dtype) {
      return InvalidArgumentError(url, ": ", pair.tokens->url, " has tokens of ",
                                  Name(documents.dtype), ", those before it ",
                                  Name(all->front().dtype));
    }
    digest = Fold(digest, Crc32c(std::as_bytes(std::span(documents.begins))));
    listed.push_back(
        {.url = documents.url, .sample_count = index->borders - 1, .size_bytes = bytes});
    all->push_back(std::move(documents));
  }
  return SourceOfShards(
      {.name = url, .digest = digest, .version = VersionOf(objects)}, std::move(listed),
      [storage, all,
       shard_options = options.shard](std::size_t i) -> StatusOr<std::unique_ptr<ShardReader>> {
        const Documents& documents = (*all)[i];
        AIT_ASSIGN_OR_RETURN(auto object, storage->Open(documents.url));
        const std::int64_t bytes = documents.begins.back() * SizeOf(documents.dtype);
        if (object->info().size_bytes != bytes) {
          return DataLossError("Megatron file ", documents.url, " has ", object->info().size_bytes,
                               " bytes, its index states ", bytes);
        }
        return ShardOfDocuments("megatron", std::move(object), 0, documents.dtype, documents.begins,
                                shard_options);
      });
}

}  // namespace

std::unique_ptr<ShardReader> ShardOfDocuments(std::string_view format,
                                              std::shared_ptr<const StoredObject> object,
                                              std::int64_t offset_bytes, DType dtype,
                                              std::vector<std::int64_t> begins,
                                              const ShardOptions& options) {
  return std::make_unique<DocumentShard>(format, std::move(object), offset_bytes, dtype,
                                         std::move(begins), options.max_record_bytes);
}

extern const ShardFormat kLlmcFormat;
const ShardFormat kLlmcFormat = {.name = "llmc",
                                 .summary = "tokens of llm.c, a document is a sample",
                                 .match = MatchLlmc,
                                 .open = OpenLlmcShard,
                                 .create = nullptr};
extern const CollectionFormat kMegatronCollection;
const CollectionFormat kMegatronCollection = {
    .name = "megatron",
    .summary = "tokens of Megatron (.bin and .idx), a document is a sample",
    .match = MatchMegatron,
    .open = OpenMegatronPairs};

}  // namespace internal
}  // namespace ait::inline v0

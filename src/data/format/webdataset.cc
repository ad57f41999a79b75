// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <unordered_set>
#include <utility>

#include "ait/data/crc32c.h"
#include "data/format/format_entry_internal.h"
#include "data/format/tar_walk_internal.h"
#include "data/format/webdataset_internal.h"

namespace ait::inline v0::internal {
namespace {

class WebDatasetShard final : public ShardReader {
 public:
  WebDatasetShard(std::shared_ptr<const StoredObject> object, const ShardOptions& options,
                  std::shared_ptr<const ShardIndex> index)
      : object_(std::move(object)), options_(options), index_(std::move(index)), links_(*object_) {}

  std::string_view format() const override { return "webdataset"; }
  const StoredObject& object() const override { return *object_; }
  std::int64_t record_count() const override {
    return static_cast<std::int64_t>(index_->extents.size());
  }
  RecordExtent extent(std::int64_t record) const override {
    return index_->extents[static_cast<std::size_t>(record)];
  }
  std::int64_t max_record_bytes() const override { return options_.max_record_bytes; }

  Status Decode(std::int64_t record, const ByteView& bytes, Sample& sample) const override {
    const std::int64_t begin = extent(record).offset_bytes;
    const Status status = DecodeBytes(record, bytes, sample);
    return status.ok() ? status : AtOffset(object_->info(), begin, status);
  }

  StatusOr<std::unique_ptr<SampleStream>> Stream(const StreamOptions& options) const override {
    return StreamTar(object_, options_, options, index_);
  }

 private:
  Status DecodeBytes(std::int64_t record, const ByteView& bytes, Sample& sample) const;

  const std::shared_ptr<const StoredObject> object_;
  const ShardOptions options_;
  const std::shared_ptr<const ShardIndex> index_;
  const TarLinks links_;
};

Status WebDatasetShard::DecodeBytes(std::int64_t record, const ByteView& bytes,
                                    Sample& sample) const {
  const auto length = static_cast<std::int64_t>(bytes.size_bytes());
  if (length != extent(record).length_bytes) {
    return InvalidArgumentError("record ", record, " was given ", length, " bytes of ",
                                extent(record).length_bytes);
  }
  if (length > options_.max_record_bytes) {
    return InvalidArgumentError("record ", record, " has ", length, " bytes, at most ",
                                options_.max_record_bytes, " are believed");
  }
  if (options_.check == ShardCheck::kContents && !index_->checksums.empty()) {
    const std::uint32_t expected = index_->checksums[static_cast<std::size_t>(record)];
    if (Crc32c(bytes.bytes()) != expected) {
      return DataLossError("the bytes of record ", record,
                           " have another checksum than in the "
                           "index: damaged, or changed since it was written");
    }
  }
  thread_local WebDatasetRecord collected(KeyRule::kFirstDot);
  thread_local TarParser parser;
  collected.Clear();
  collected.set_rule(options_.key_rule);
  std::int64_t at = 0;
  TarMember member;
  while (at < length) {
    AIT_ASSIGN_OR_RETURN(const TarStep step,
                         parser.Parse(bytes.bytes().subspan(static_cast<std::size_t>(at)), member));
    if (step == TarStep::kZeroBlock) break;  // an index of offsets alone has the end in the last
    if (step == TarStep::kNeedBytes || member.total_bytes() > length - at) {
      return DataLossError("record ", record, " ends within a member: its index is wrong");
    }
    if (collected.Offer(member, at + member.header_bytes) == WebDatasetRecord::Take::kOther) {
      return DataLossError("record ", record, " has members of '", collected.key(), "' and '",
                           member.name, "': its index is wrong");
    }
    at += member.total_bytes();
  }
  if (collected.is_empty()) return DataLossError("record ", record, " has no field");
  return collected.Fill(bytes, links_, options_.max_record_bytes, sample);
}

int Match(std::string_view url, std::span<const std::byte> head) {
  if (head.size() >= static_cast<std::size_t>(kTarBlock)) {
    const auto block = head.first(kTarBlock);
    const std::string_view text(reinterpret_cast<const char*>(block.data()), block.size());
    const StatusOr<std::int64_t> sum = ParseTarNumber(text.substr(148, 8), "checksum");
    if (sum.ok() && *sum == TarChecksum(block)) return 2;
  }
  return url.ends_with(".tar") ? 1 : 0;
}

StatusOr<std::unique_ptr<ShardReader>> Open(std::shared_ptr<const StoredObject> object,
                                            const ShardOptions& options,
                                            std::shared_ptr<const StoredObject> index) {
  const ObjectInfo& info = object->info();
  AIT_RETURN_IF_ERROR(CheckTarSize(info));
  ShardIndex table;
  if (index != nullptr) {
    AIT_ASSIGN_OR_RETURN(table, ReadIndexOf(info, "webdataset", *index));
  }
  if (index == nullptr || table.key_rule != options.key_rule) {
    AIT_ASSIGN_OR_RETURN(table, IndexTar(*object, options));
  }
  return std::make_unique<WebDatasetShard>(std::move(object), options,
                                           std::make_shared<const ShardIndex>(std::move(table)));
}

}  // namespace

StatusOr<ByteView> TarLinks::Resolve(std::string_view name, std::int64_t most_bytes) const {
  std::call_once(walked_, [this] {
    walk_status_ = WalkTar(object_, 0, [this](std::int64_t offset, const TarMember& member) {
      if (member.kind == TarKind::kFile) {
        places_[std::string(member.name)] = {offset + member.header_bytes, member.size_bytes};
      }
      return OkStatus();
    });
  });
  AIT_RETURN_IF_ERROR(walk_status_);
  const auto found = places_.find(std::string(name));
  if (found == places_.end()) {
    return InvalidArgumentError("'", name, "' is no file of this archive");
  }
  if (found->second.size_bytes > most_bytes) {
    return InvalidArgumentError("'", name, "' has ", found->second.size_bytes, " bytes, ",
                                most_bytes, " are left of those that are believed");
  }
  const auto size = static_cast<std::size_t>(found->second.size_bytes);
  auto bytes = std::make_shared_for_overwrite<std::byte[]>(size);
  const std::span<std::byte> out(bytes.get(), size);
  AIT_RETURN_IF_ERROR(object_.ReadAt(found->second.offset_bytes, out));
  return ByteView(out, std::move(bytes));
}

StatusOr<ShardIndex> IndexTar(const StoredObject& object, const ShardOptions& options) {
  ShardIndex index;
  index.format = "webdataset";
  index.shard_bytes = object.info().size_bytes;
  index.key_rule = options.key_rule;
  std::unordered_set<std::string> keys;
  std::string key;
  std::int64_t next_offset = 0;
  AIT_RETURN_IF_ERROR(
      WalkTar(object, 0, [&](std::int64_t offset, const TarMember& member) -> Status {
        const bool is_new_archive = offset != next_offset;  // the marks of the end lie between
        next_offset = offset + member.total_bytes();
        if (is_new_archive) key.clear();
        if (member.kind == TarKind::kDirectory) return OkStatus();
        const KeyedName split = SplitName(member.name, options.key_rule);
        if (!split.is_field) return OkStatus();
        if (split.key != key) {  // a key is never empty
          key = split.key;
          if (!keys.insert(key).second) {
            return AtOffset(object.info(), offset,
                            InvalidArgumentError("'", member.name, "' belongs to sample '", key,
                                                 "', which ended before: the files of a sample "
                                                 "must lie together; sort them when packing"));
          }
          index.extents.push_back({offset, 0});
        }
        RecordExtent& extent = index.extents.back();
        extent.length_bytes = offset + member.total_bytes() - extent.offset_bytes;
        return OkStatus();
      }));
  return index;
}

extern const ShardFormat kWebDatasetFormat;
const ShardFormat kWebDatasetFormat = {
    .name = "webdataset",
    .extension = ".tar",
    .summary = "tar of files, those of a sample named alike",
    .match = Match,
    .open = Open,
    .create = CreateTar,
    .stream = StreamTar,
};

}  // namespace ait::inline v0::internal

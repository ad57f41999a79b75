// SPDX-License-Identifier: Apache-2.0
#include "ait/data/format/shard.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace ait::inline v0 {
namespace {

// Cuts the records of a shard out of the blocks of its object. A record within a block is a view of
// it; one that lies over the border of two is put together in memory of its own.
class ExtentStream final : public SampleStream {
 public:
  ExtentStream(const ShardReader& shard, std::unique_ptr<ObjectStream> blocks, std::int64_t begin)
      : shard_(shard), blocks_(std::move(blocks)), block_begin_(begin) {}

  StatusOr<bool> Next(Sample& sample) override {
    if (record_ == shard_.record_count()) return false;
    if (Status size = shard_.CheckRecordSize(record_); !size.ok()) {
      ++record_;  // read over
      return size;
    }
    AIT_ASSIGN_OR_RETURN(const ByteView bytes, Cut(shard_.extent(record_)));
    const std::int64_t record = record_++;
    AIT_RETURN_IF_ERROR(shard_.Decode(record, bytes, sample));
    sample.id = record;
    return true;
  }

 private:
  std::int64_t block_end() const {
    return block_begin_ + static_cast<std::int64_t>(block_.size_bytes());
  }

  Status Advance() {
    block_begin_ = block_end();
    block_ = ByteView();  // before the next is read, so that its memory can be used again
    AIT_ASSIGN_OR_RETURN(block_, blocks_->Next());
    if (!block_.is_empty()) return OkStatus();
    return DataLossError(shard_.object().info().url, " ends at byte ", block_begin_,
                         ", before record ", record_);
  }

  StatusOr<ByteView> Cut(const RecordExtent& extent) {
    if (extent.length_bytes == 0) return ByteView();
    while (extent.offset_bytes >= block_end()) AIT_RETURN_IF_ERROR(Advance());
    const std::int64_t end = extent.offset_bytes + extent.length_bytes;
    const auto at = static_cast<std::size_t>(extent.offset_bytes - block_begin_);
    const auto length = static_cast<std::size_t>(extent.length_bytes);
    if (end <= block_end()) return block_.Slice(at, length);
    auto joined = std::make_shared_for_overwrite<std::byte[]>(length);
    std::size_t filled = block_.size_bytes() - at;
    std::memcpy(joined.get(), block_.data() + at, filled);
    while (filled < length) {
      AIT_RETURN_IF_ERROR(Advance());
      const std::size_t part = std::min(length - filled, block_.size_bytes());
      std::memcpy(joined.get() + filled, block_.data(), part);
      filled += part;
    }
    const std::span<const std::byte> bytes(joined.get(), length);
    return ByteView(bytes, std::move(joined));
  }

  const ShardReader& shard_;
  std::unique_ptr<ObjectStream> blocks_;
  ByteView block_;
  std::int64_t block_begin_;
  std::int64_t record_ = 0;
};

}  // namespace

Status ShardReader::CheckRecordSize(std::int64_t record) const {
  const RecordExtent where = extent(record);
  if (where.length_bytes <= max_record_bytes()) return OkStatus();
  return InvalidArgumentError(object().info().url, " record ", record, " at byte ",
                              where.offset_bytes, ": it has ", where.length_bytes,
                              " bytes, at most ", max_record_bytes(),
                              " are believed (max_record_bytes)");
}

StatusOr<Sample> ShardReader::ReadRecord(std::int64_t record) const {
  if (record < 0 || record >= record_count()) {
    return OutOfRangeError(object().info().url, " has no record ", record, " but ", record_count());
  }
  AIT_RETURN_IF_ERROR(CheckRecordSize(record));
  const RecordExtent where = extent(record);
  const auto length = static_cast<std::size_t>(where.length_bytes);
  auto bytes = std::make_shared_for_overwrite<std::byte[]>(length);
  const std::span<std::byte> out(bytes.get(), length);
  AIT_RETURN_IF_ERROR(object().ReadAt(where.offset_bytes, out));
  Sample sample;
  AIT_RETURN_IF_ERROR(Decode(record, ByteView(out, std::move(bytes)), sample));
  sample.id = record;
  return sample;
}

StatusOr<std::unique_ptr<SampleStream>> ShardReader::Stream(const StreamOptions& options) const {
  StreamOptions range = options;
  range.offset_bytes = 0;
  range.length_bytes = 0;
  if (record_count() > 0) {
    range.offset_bytes = extent(0).offset_bytes;
    const RecordExtent last = extent(record_count() - 1);
    range.length_bytes = last.offset_bytes + last.length_bytes - range.offset_bytes;
  }
  AIT_ASSIGN_OR_RETURN(std::unique_ptr<ObjectStream> blocks, object().Stream(range));
  return std::make_unique<ExtentStream>(*this, std::move(blocks), range.offset_bytes);
}

}  // namespace ait::inline v0

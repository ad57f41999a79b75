// SPDX-License-Identifier: Apache-2.0
#include "data/format/tfrecord_internal.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "ait/data/crc32c.h"
#include "data/format/format_entry_internal.h"
#include "data/format/object_window_internal.h"
#include "data/format/record_window_internal.h"
#include "data/format/tf_example_internal.h"
#include "data/little_endian_internal.h"

namespace ait::inline v0::internal {
namespace {

Status At(const ObjectInfo& info, std::int64_t record, std::int64_t offset, const Status& status) {
  return Annotate(status, StrCat(info.url, " record ", record, " at byte ", offset));
}

Status TooLarge(std::int64_t whole, const ShardOptions& options) {
  return InvalidArgumentError("it has ", whole, " bytes, at most ", options.max_record_bytes,
                              " are believed");
}

// What an index says about the bytes of a record beyond their own checksums.
Status CheckAgainst(const ShardIndex& index, std::int64_t record, const ByteView& bytes) {
  if (Crc32c(bytes.bytes()) == index.checksums[static_cast<std::size_t>(record)]) {
    return OkStatus();
  }
  return DataLossError("another checksum than in the index: changed since it was written");
}

class TfrecordShard final : public ShardReader {
 public:
  TfrecordShard(std::shared_ptr<const StoredObject> object, const ShardOptions& options,
                std::shared_ptr<const ShardIndex> index)
      : object_(std::move(object)), options_(options), index_(std::move(index)) {}

  std::string_view format() const override { return "tfrecord"; }
  const StoredObject& object() const override { return *object_; }
  std::int64_t record_count() const override {
    return static_cast<std::int64_t>(index_->extents.size());
  }
  RecordExtent extent(std::int64_t record) const override {
    return index_->extents[static_cast<std::size_t>(record)];
  }
  std::int64_t max_record_bytes() const override { return options_.max_record_bytes; }
  Status Decode(std::int64_t record, const ByteView& bytes, Sample& sample) const override {
    Status status = DecodeTfrecord(record, bytes, options_, sample);
    if (status.ok() && options_.check == ShardCheck::kContents && !index_->checksums.empty()) {
      status = CheckAgainst(*index_, record, bytes);
    }
    return status.ok() ? status : At(object_->info(), record, extent(record).offset_bytes, status);
  }
  StatusOr<std::unique_ptr<SampleStream>> Stream(const StreamOptions& options) const override {
    return StreamTfrecord(object_, options_, options, index_);
  }

 private:
  const std::shared_ptr<const StoredObject> object_;
  const ShardOptions options_;
  const std::shared_ptr<const ShardIndex> index_;
};

class TfrecordStream final : public SampleStream {
 public:
  TfrecordStream(std::shared_ptr<const StoredObject> object, const ShardOptions& options,
                 std::unique_ptr<ObjectStream> blocks, std::shared_ptr<const ShardIndex> index)
      : object_(std::move(object)),
        options_(options),
        index_(std::move(index)),
        window_(std::move(blocks), 0) {}

  StatusOr<bool> Next(Sample& sample) override {
    for (SampleField& field : sample.fields) field.value = ByteView();
    if (!broken_.ok()) return broken_;
    const Status found = Find();
    if (!found.ok()) {
      return broken_ = At(object_->info(), record_, window_.offset_bytes(), found);
    }
    if (record_bytes_ == 0) return false;
    const std::int64_t record = record_++;
    if (record_bytes_ > options_.max_record_bytes) {
      return At(object_->info(), record, window_.offset_bytes(), TooLarge(record_bytes_, options_));
    }
    const auto whole = static_cast<std::size_t>(record_bytes_);
    if (const Status joined = window_.Ensure(whole).status(); !joined.ok()) {
      return broken_ = At(object_->info(), record, window_.offset_bytes(), joined);
    }
    const ByteView bytes = window_.View(whole);
    Status status = DecodeTfrecord(record, bytes, options_, sample);
    if (status.ok() && options_.check == ShardCheck::kContents && index_ != nullptr &&
        !index_->checksums.empty()) {
      status = CheckAgainst(*index_, record, bytes);
    }
    if (!status.ok()) return At(object_->info(), record, window_.offset_bytes(), status);
    sample.id = record;
    return true;
  }

 private:
  // Moves the window to the next record, of `record_bytes_` bytes; 0 at the end.
  Status Find() {
    const std::int64_t rest = object_->info().size_bytes - window_.offset_bytes() - record_bytes_;
    AIT_RETURN_IF_ERROR(window_.Advance(static_cast<std::size_t>(record_bytes_)));
    record_bytes_ = 0;
    const auto count = index_ == nullptr ? -1 : static_cast<std::int64_t>(index_->extents.size());
    if (rest == 0) {
      if (index_ == nullptr || record_ == count) return OkStatus();
      return DataLossError("the file has ", record_, " records, its index has ", count);
    }
    AIT_ASSIGN_OR_RETURN(const auto header,
                         window_.Ensure(static_cast<std::size_t>(kTfrecordHeader)));
    AIT_ASSIGN_OR_RETURN(const std::int64_t length, ParseTfrecordHeader(header, rest));
    const std::int64_t whole = kTfrecordFrame + length;
    if (index_ != nullptr) {
      if (record_ >= count ||
          index_->extents[static_cast<std::size_t>(record_)].offset_bytes !=
              window_.offset_bytes() ||
          index_->extents[static_cast<std::size_t>(record_)].length_bytes != whole) {
        return DataLossError("it lies elsewhere by the index: write the index anew");
      }
    }
    record_bytes_ = whole;
    return OkStatus();
  }

  const std::shared_ptr<const StoredObject> object_;
  const ShardOptions options_;
  const std::shared_ptr<const ShardIndex> index_;
  RecordWindow window_;
  std::int64_t record_bytes_ = 0;
  std::int64_t record_ = 0;
  Status broken_;
};

int Match(std::string_view url, std::span<const std::byte> head) {
  if (head.size() >= static_cast<std::size_t>(kTfrecordHeader) &&
      MaskedCrc32c(head.first(8)) == LoadLittleEndian<std::uint32_t>(head, 8)) {
    return 2;
  }
  return url.find(".tfrecord") != std::string_view::npos ? 1 : 0;
}

// Finds the records from their lengths, each of which has a checksum.
StatusOr<ShardIndex> IndexTfrecord(const StoredObject& object) {
  const ObjectInfo& info = object.info();
  ShardIndex index;
  index.format = "tfrecord";
  index.shard_bytes = info.size_bytes;
  ObjectWindow window(object);
  std::int64_t at = 0;
  while (at < info.size_bytes) {
    const auto record = static_cast<std::int64_t>(index.extents.size());
    AIT_ASSIGN_OR_RETURN(const auto header, window.At(at, kTfrecordHeader));
    const StatusOr<std::int64_t> length = ParseTfrecordHeader(header, info.size_bytes - at);
    if (!length.ok()) return At(info, record, at, length.status());
    index.extents.push_back({at, kTfrecordFrame + *length});
    at += kTfrecordFrame + *length;
  }
  return index;
}

StatusOr<std::unique_ptr<ShardReader>> Open(std::shared_ptr<const StoredObject> object,
                                            const ShardOptions& options,
                                            std::shared_ptr<const StoredObject> index) {
  ShardIndex table;
  if (index == nullptr) {
    AIT_ASSIGN_OR_RETURN(table, IndexTfrecord(*object));
  } else {
    AIT_ASSIGN_OR_RETURN(table, ReadIndexOf(object->info(), "tfrecord", *index));
  }
  return std::make_unique<TfrecordShard>(std::move(object), options,
                                         std::make_shared<const ShardIndex>(std::move(table)));
}

}  // namespace

std::uint32_t MaskedCrc32c(std::span<const std::byte> bytes) {
  const std::uint32_t crc = Crc32c(bytes);
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

StatusOr<std::int64_t> ParseTfrecordHeader(std::span<const std::byte> header,
                                           std::int64_t rest_bytes) {
  if (header.size() < static_cast<std::size_t>(kTfrecordHeader)) {
    return DataLossError("the file ends within the length of a record: truncated");
  }
  if (LoadLittleEndian<std::uint32_t>(header, 8) != MaskedCrc32c(header.first(8))) {
    return DataLossError("the checksum of its length is wrong: damaged, or no TFRecord file");
  }
  const auto length = LoadLittleEndian<std::uint64_t>(header, 0);
  if (rest_bytes < kTfrecordFrame ||
      length > static_cast<std::uint64_t>(rest_bytes - kTfrecordFrame)) {
    return DataLossError("its length is ", length, " bytes, ", rest_bytes,
                         " are left with its frame of 16: truncated");
  }
  return static_cast<std::int64_t>(length);
}

Status DecodeTfrecord(std::int64_t record, const ByteView& bytes, const ShardOptions& options,
                      Sample& sample) {
  const auto whole = static_cast<std::int64_t>(bytes.size_bytes());
  if (whole > options.max_record_bytes) return TooLarge(whole, options);
  AIT_ASSIGN_OR_RETURN(const std::int64_t length, ParseTfrecordHeader(bytes.bytes(), whole));
  if (length + kTfrecordFrame != whole) {
    return DataLossError("its length is ", length, " bytes, by the index it has ",
                         whole - kTfrecordFrame);
  }
  const ByteView data = bytes.Slice(kTfrecordHeader, static_cast<std::size_t>(length));
  if (LoadLittleEndian<std::uint32_t>(bytes.bytes(), static_cast<std::size_t>(whole - 4)) !=
      MaskedCrc32c(data.bytes())) {
    return DataLossError("the checksum of its data is wrong: damaged");
  }
  char digits[24];
  sample.id = record;  // as SampleBuilder::SetKey
  sample.key.assign(digits, std::to_chars(digits, digits + sizeof(digits), record).ptr);
  if (options.tfrecord_payload == TfrecordPayload::kExample) return DecodeExample(data, sample);
  sample.fields.resize(1);
  SampleField& field = sample.fields[0];
  field.name = "data";
  field.kind = FieldKind::kBytes;
  field.dtype = DType::kUInt8;
  field.shape.clear();
  field.value = data;
  return OkStatus();
}

StatusOr<std::unique_ptr<SampleStream>> StreamTfrecord(std::shared_ptr<const StoredObject> object,
                                                       const ShardOptions& options,
                                                       const StreamOptions& stream_options,
                                                       std::shared_ptr<const ShardIndex> index) {
  StreamOptions all = stream_options;
  all.offset_bytes = 0;
  all.length_bytes = object->info().size_bytes;
  AIT_ASSIGN_OR_RETURN(std::unique_ptr<ObjectStream> blocks, object->Stream(all));
  return std::make_unique<TfrecordStream>(std::move(object), options, std::move(blocks),
                                          std::move(index));
}

extern const ShardFormat kTfrecordFormat;
const ShardFormat kTfrecordFormat = {
    .name = "tfrecord",
    .extension = ".tfrecord",
    .summary = "records with checksums, as TensorFlow writes them",
    .match = Match,
    .open = Open,
    .create = CreateTfrecord,
    .stream = StreamTfrecord,
};

}  // namespace ait::inline v0::internal

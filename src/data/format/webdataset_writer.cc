// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>
#include <algorithm>
#include <cerrno>

#include <utility>

#include "ait/base/durable_file.h"
#include "ait/data/crc32c.h"
#include "data/format/key_set_internal.h"
#include "data/format/tar_write_internal.h"
#include "data/format/webdataset_internal.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;
constexpr std::int64_t kRecordBytes = 20 * kTarBlock;  // what a tar is padded to
constexpr std::int64_t kMaxTime = (std::int64_t{1} << 33) - 1;

std::int64_t EndBytes(std::int64_t size) {
  return (size + 2 * kTarBlock + kRecordBytes - 1) / kRecordBytes * kRecordBytes;
}

class TarShardWriter final : public ShardWriter {
 public:
  TarShardWriter(DurableFile file, const ShardWriterOptions& options)
      : file_(std::move(file)), options_(options) {
    index_.format = "webdataset";
  }

  Status Append(const Sample& sample) override;
  std::int64_t size_bytes() const override { return EndBytes(written_bytes()); }
  std::int64_t record_count() const override {
    return static_cast<std::int64_t>(index_.extents.size());
  }
  Status Commit() override;

 private:
  std::int64_t written_bytes() const {
    return file_.size_bytes() + static_cast<std::int64_t>(buffer_.size());
  }
  Status CheckFields(const Sample& sample);
  Status AppendField(const SampleField& field);
  Status Flush();

  DurableFile file_;
  const ShardWriterOptions options_;
  ShardIndex index_;
  KeySet keys_;
  std::vector<const SampleField*> fields_;  // of the sample that is written, in order of names
  std::string name_;
  std::string buffer_;
  std::uint32_t checksum_ = 0;
  Status broken_;  // after a write failed nothing can follow
};

Status TarShardWriter::CheckFields(const Sample& sample) {
  fields_.clear();
  for (const SampleField& field : sample.fields) fields_.push_back(&field);
  if (fields_.empty()) return InvalidArgumentError("sample '", sample.key, "' has no fields");
  std::sort(fields_.begin(), fields_.end(),
            [](const SampleField* a, const SampleField* b) { return a->name < b->name; });
  for (std::size_t i = 0; i < fields_.size(); ++i) {
    const SampleField& field = *fields_[i];
    const std::string name = StrCat(sample.key, ".", field.name);
    const KeyedName split = SplitName(name, KeyRule::kFirstDot);
    const bool has_upper = std::any_of(field.name.begin(), field.name.end(),
                                       [](char c) { return c >= 'A' && c <= 'Z'; });
    if (!split.is_field || split.key != sample.key || split.extension != field.name || has_upper ||
        name.find('\0') != std::string::npos) {
      return InvalidArgumentError(
          "'", name, "' would not be read back as field '", field.name, "' of sample '", sample.key,
          "': a key has no dot after its last slash, a field no slash and no capitals");
    }
    if (i > 0 && fields_[i - 1]->name == field.name) {
      return InvalidArgumentError("sample '", sample.key, "' has two fields '", field.name, "'");
    }
    if (field.kind == FieldKind::kArray) {
      return InvalidArgumentError(
          "field '", field.name, "' of sample '", sample.key,
          "' is an array, a tar holds files: encode it, as npy for example");
    }
  }
  if (!keys_.Insert(sample.key)) {
    return InvalidArgumentError("a second sample '", sample.key, "' in one shard");
  }
  return OkStatus();
}

Status TarShardWriter::Flush() {
  AIT_RETURN_IF_ERROR(file_.Append(std::as_bytes(std::span(buffer_))));
  buffer_.clear();
  return OkStatus();
}

Status TarShardWriter::AppendField(const SampleField& field) {
  const auto size = static_cast<std::int64_t>(field.value.size_bytes());
  const std::size_t begin = buffer_.size();
  AppendTarHeaders(buffer_, name_, size, options_.modification_time);
  checksum_ = Crc32c(std::as_bytes(std::span(buffer_).subspan(begin)), checksum_);
  checksum_ = Crc32c(field.value.bytes(), checksum_);
  if (field.value.size_bytes() < kBufferBytes) {
    buffer_ += field.value.text();
  } else {
    AIT_RETURN_IF_ERROR(Flush());
    AIT_RETURN_IF_ERROR(file_.Append(field.value.bytes()));
  }
  const std::size_t data_end = buffer_.size();
  buffer_.append(static_cast<std::size_t>(TarPadded(size) - size), '\0');
  checksum_ = Crc32c(std::as_bytes(std::span(buffer_).subspan(data_end)), checksum_);
  return buffer_.size() < kBufferBytes ? OkStatus() : Flush();
}

Status TarShardWriter::Append(const Sample& sample) {
  AIT_RETURN_IF_ERROR(broken_);
  AIT_RETURN_IF_ERROR(CheckFields(sample));
  const std::int64_t begin = written_bytes();
  checksum_ = 0;
  for (const SampleField* field : fields_) {
    name_ = StrCat(sample.key, ".", field->name);
    if (Status status = AppendField(*field); !status.ok()) return broken_ = std::move(status);
  }
  index_.extents.push_back({begin, written_bytes() - begin});
  index_.checksums.push_back(checksum_);
  return OkStatus();
}

Status TarShardWriter::Commit() {
  AIT_RETURN_IF_ERROR(broken_);
  broken_ = FailedPreconditionError(file_.path(), " is committed");
  const std::int64_t size = written_bytes();
  buffer_.append(static_cast<std::size_t>(EndBytes(size) - size), '\0');
  AIT_RETURN_IF_ERROR(Flush());
  index_.shard_bytes = file_.size_bytes();
  // An older index never stands beside the new shard.
  const std::string index_path = IndexPath(file_.path());
  if (unlink(index_path.c_str()) != 0 && errno != ENOENT) {
    return ErrnoError(errno, "removing the old index ", index_path);
  }
  AIT_RETURN_IF_ERROR(file_.Commit());
  if (!options_.with_index) return OkStatus();
  return WriteFileDurably(index_path, SerializeIndex(index_));
}

}  // namespace

StatusOr<std::unique_ptr<ShardWriter>> CreateTar(const std::string& path,
                                                 const ShardWriterOptions& options) {
  if (options.modification_time < 0 || options.modification_time > kMaxTime) {
    return InvalidArgumentError("modification time ", options.modification_time,
                                "; a tar holds 0 to ", kMaxTime, " seconds since 1970");
  }
  AIT_ASSIGN_OR_RETURN(DurableFile file, DurableFile::Create(path));
  return std::make_unique<TarShardWriter>(std::move(file), options);
}

}  // namespace ait::inline v0::internal

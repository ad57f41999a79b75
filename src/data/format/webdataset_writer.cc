// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>
#include <algorithm>
#include <utility>

#include "data/format/indexed_file_internal.h"
#include "data/format/key_set_internal.h"
#include "data/format/tar_write_internal.h"
#include "data/format/webdataset_internal.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::int64_t kRecordBytes = 20 * kTarBlock;  // what a tar is padded to
constexpr std::int64_t kMaxTime = (std::int64_t{1} << 33) - 1;

std::int64_t EndBytes(std::int64_t size) {
  return (size + 2 * kTarBlock + kRecordBytes - 1) / kRecordBytes * kRecordBytes;
}

class TarShardWriter final : public ShardWriter {
 public:
  TarShardWriter(IndexedFile file, std::int64_t modification_time)
      : file_(std::move(file)), modification_time_(modification_time) {}

  Status Append(const Sample& sample) override;
  std::int64_t size_bytes() const override { return EndBytes(file_.size_bytes()); }
  std::int64_t record_count() const override { return file_.record_count(); }
  Status Commit() override;

 private:
  Status CheckFields(const Sample& sample);
  Status AppendField(const SampleField& field);

  IndexedFile file_;
  const std::int64_t modification_time_;
  KeySet keys_;
  std::vector<const SampleField*> fields_;  // of the sample that is written, in order of names
  std::string name_;
  std::string headers_;
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

Status TarShardWriter::AppendField(const SampleField& field) {
  const auto size = static_cast<std::int64_t>(field.value.size_bytes());
  headers_.clear();
  AppendTarHeaders(headers_, name_, size, modification_time_);
  AIT_RETURN_IF_ERROR(file_.Append(headers_));
  AIT_RETURN_IF_ERROR(file_.Append(field.value.bytes()));
  return file_.AppendZeros(TarPadded(size) - size);
}

Status TarShardWriter::Append(const Sample& sample) {
  AIT_RETURN_IF_ERROR(CheckFields(sample));
  file_.BeginRecord();
  for (const SampleField* field : fields_) {
    name_ = StrCat(sample.key, ".", field->name);
    AIT_RETURN_IF_ERROR(AppendField(*field));
  }
  file_.EndRecord();
  return OkStatus();
}

Status TarShardWriter::Commit() {
  AIT_RETURN_IF_ERROR(file_.AppendZeros(size_bytes() - file_.size_bytes()));
  return file_.Commit();
}

}  // namespace

StatusOr<std::unique_ptr<ShardWriter>> CreateTar(const std::string& path,
                                                 const ShardWriterOptions& options) {
  if (options.modification_time < 0 || options.modification_time > kMaxTime) {
    return InvalidArgumentError("modification time ", options.modification_time,
                                "; a tar holds 0 to ", kMaxTime, " seconds since 1970");
  }
  AIT_ASSIGN_OR_RETURN(IndexedFile file, IndexedFile::Create(path, "webdataset", options));
  return std::make_unique<TarShardWriter>(std::move(file), options.modification_time);
}

}  // namespace ait::inline v0::internal

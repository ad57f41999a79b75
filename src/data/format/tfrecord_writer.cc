// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "ait/data/crc32c.h"
#include "data/format/indexed_file_internal.h"
#include "data/format/tf_example_internal.h"
#include "data/format/tfrecord_internal.h"
#include "data/little_endian_internal.h"

namespace ait::inline v0::internal {
namespace {

// A sample of nothing but the field "data" is written as it is, any other as a tf.train.Example.
class TfrecordWriter final : public ShardWriter {
 public:
  explicit TfrecordWriter(IndexedFile file) : file_(std::move(file)) {}

  Status Append(const Sample& sample) override {
    const bool is_plain = sample.fields.size() == 1 && sample.fields[0].name == "data" &&
                          sample.fields[0].kind != FieldKind::kArray;
    if (is_plain) return AppendRecord(sample.fields[0].value.bytes());
    AIT_ASSIGN_OR_RETURN(const std::string example, EncodeExample(sample));
    return AppendRecord(std::as_bytes(std::span(example)));
  }

  std::int64_t size_bytes() const override { return file_.size_bytes(); }
  std::int64_t record_count() const override { return file_.record_count(); }
  Status Commit() override { return file_.Commit(); }

 private:
  Status AppendRecord(std::span<const std::byte> data) {
    std::byte header[kTfrecordHeader];
    StoreLittleEndian(std::span<std::byte>(header), 0, static_cast<std::uint64_t>(data.size()));
    StoreLittleEndian(std::span<std::byte>(header), 8, MaskedCrc32c(std::span(header).first(8)));
    std::byte footer[4];
    StoreLittleEndian(std::span<std::byte>(footer), 0, MaskedCrc32c(data));
    file_.BeginRecord();
    AIT_RETURN_IF_ERROR(file_.Append(header));
    AIT_RETURN_IF_ERROR(file_.Append(data));
    AIT_RETURN_IF_ERROR(file_.Append(footer));
    file_.EndRecord();
    return OkStatus();
  }

  IndexedFile file_;
};

}  // namespace

StatusOr<std::unique_ptr<ShardWriter>> CreateTfrecord(const std::string& path,
                                                      const ShardWriterOptions& options) {
  AIT_ASSIGN_OR_RETURN(IndexedFile file, IndexedFile::Create(path, "tfrecord", options));
  return std::make_unique<TfrecordWriter>(std::move(file));
}

}  // namespace ait::inline v0::internal

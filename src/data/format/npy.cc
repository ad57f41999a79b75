// SPDX-License-Identifier: Apache-2.0
// An npy file is one array; row i of axis 0 is sample i, with the field "data".
#include <optional>
#include <utility>

#include "ait/base/durable_file.h"
#include "data/format/format_entry_internal.h"
#include "data/format/npy_header_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

int Match(std::string_view, std::span<const std::byte> head) {
  return BeginsWith(head, "\x93NUMPY") ? 2 : 0;
}

StatusOr<std::unique_ptr<ShardReader>> Open(std::shared_ptr<const StoredObject> object,
                                            const ShardOptions& options,
                                            std::shared_ptr<const StoredObject>) {
  AIT_ASSIGN_OR_RETURN(StoredArray array, OpenNpyArray(object, "data"));
  std::vector<StoredArray> arrays;
  arrays.push_back(std::move(array));
  return ShardOfRows("npy", std::move(object), std::move(arrays), options);
}

class NpyWriter final : public ShardWriter {
 public:
  explicit NpyWriter(DurableFile file) : file_(std::move(file)) {}

  Status Append(const Sample& sample) override {
    const SampleField* field = sample.fields.size() == 1 ? &sample.fields.front() : nullptr;
    if (field == nullptr || field->kind != FieldKind::kArray) {
      return InvalidArgumentError(file_.path(), ": sample ", sample.key, " has ",
                                  sample.fields.size(),
                                  " fields; a row of an npy file is one array: write webdataset, "
                                  "mds or tfrecord instead, or read the sample in a program that "
                                  "keeps one array of it");
    }
    if (field->dtype == DType::kBFloat16) {
      return InvalidArgumentError(file_.path(), ": npy has no bfloat16; store float32");
    }
    if (ArrayBytes(field->dtype, field->shape) !=
        static_cast<std::int64_t>(field->value.size_bytes())) {
      return InvalidArgumentError(file_.path(), ": sample ", sample.key, " has ",
                                  field->value.size_bytes(), " bytes, which its shape does not");
    }
    if (!dtype_) {
      dtype_ = field->dtype;
      row_shape_ = field->shape;
      AIT_RETURN_IF_ERROR(file_.Append(Bytes(Header())));
    } else if (field->dtype != *dtype_ || field->shape != row_shape_) {
      return InvalidArgumentError(file_.path(), ": sample ", sample.key,
                                  " differs in dtype or shape from those before it; all rows of "
                                  "an npy file are alike");
    }
    AIT_RETURN_IF_ERROR(file_.Append(field->value.bytes()));
    ++count_;
    return OkStatus();
  }

  std::int64_t size_bytes() const override {
    return dtype_ ? file_.size_bytes() : static_cast<std::int64_t>(Header().size());
  }
  std::int64_t record_count() const override { return count_; }

  Status Commit() override {
    const std::string header = Header();
    AIT_RETURN_IF_ERROR(dtype_ ? file_.Overwrite(0, Bytes(header)) : file_.Append(Bytes(header)));
    return file_.Commit();
  }

 private:
  static std::span<const std::byte> Bytes(const std::string& text) {
    return std::as_bytes(std::span(text));
  }
  std::string Header() const {
    std::vector<std::int64_t> shape = {count_};
    shape.insert(shape.end(), row_shape_.begin(), row_shape_.end());
    return FormatNpyHeader(dtype_.value_or(DType::kFloat64), shape);
  }

  DurableFile file_;
  std::optional<DType> dtype_;  // of the rows, known from the first
  std::vector<std::int64_t> row_shape_;
  std::int64_t count_ = 0;
};

StatusOr<std::unique_ptr<ShardWriter>> Create(const std::string& path, const ShardWriterOptions&) {
  AIT_ASSIGN_OR_RETURN(DurableFile file, DurableFile::Create(path));
  return std::make_unique<NpyWriter>(std::move(file));
}

}  // namespace

extern const ShardFormat kNpyFormat;
const ShardFormat kNpyFormat = {.name = "npy",
                                .extension = ".npy",
                                .summary = "numpy array, a row is a sample",
                                .match = Match,
                                .open = Open,
                                .create = Create};

}  // namespace internal
}  // namespace ait::inline v0

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <limits>
#include <utility>

#include "ait/base/durable_file.h"
#include "data/format/mds_internal.h"
#include "data/json_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

void Dump(const nlohmann::json& value, std::string& text) {
  const auto items = [&](char open, char close, const auto& each) {
    text += open;
    bool is_first = true;
    for (auto item = value.begin(); item != value.end(); ++item) {
      if (!is_first) text += ", ";
      is_first = false;
      each(item);
    }
    text += close;
  };
  if (value.is_object()) {
    items('{', '}', [&](const auto& item) {
      text += nlohmann::json(item.key()).dump(-1, ' ', true) + ": ";
      Dump(item.value(), text);
    });
  } else if (value.is_array()) {
    items('[', ']', [&](const auto& item) { Dump(*item, text); });
  } else {
    text += value.dump(-1, ' ', true);
  }
}

// Encodings say what a reader decodes by, so the value must be what its name says.
std::string EncodingFor(const SampleField& field) {
  switch (field.kind) {
    case FieldKind::kBytes:
      if ((field.name == "jpg" || field.name == "jpeg") &&
          BeginsWith(field.value.bytes(), "\xff\xd8\xff")) {
        return "jpeg";
      }
      if (field.name == "png" && BeginsWith(field.value.bytes(), "\x89PNG\r\n\x1a\n")) return "png";
      return "bytes";
    case FieldKind::kText:
      return field.name == "json" && CheckJsonDepth(field.value.text()).ok() &&
                     nlohmann::json::accept(field.value.text())
                 ? "json"
                 : "str";
    case FieldKind::kArray:
      break;
  }
  return field.shape.empty() ? std::string(ait::Name(field.dtype)) : "ndarray";
}

// The encoding of the same bytes that promises less.
std::string Plain(const std::string& encoding) {
  if (encoding == "jpeg" || encoding == "png") return "bytes";
  return encoding == "json" ? "str" : encoding;
}

template <typename T>
void Put(std::vector<std::byte>& out, T value) {
  const auto bytes = std::as_bytes(std::span(&value, 1));
  out.insert(out.end(), bytes.begin(), bytes.end());
}

std::uint8_t CodeOf(DType dtype) {
  const int bits = 8 * SizeOf(dtype);
  if (IsFloatingPoint(dtype)) return static_cast<std::uint8_t>(bits + 2);
  const bool is_signed = dtype == DType::kInt8 || dtype == DType::kInt16 ||
                         dtype == DType::kInt32 || dtype == DType::kInt64;
  return static_cast<std::uint8_t>(bits + (is_signed ? 1 : 0));
}

// dtype, dimensions and the log2 of the bytes of a size, sizes; the smallest that hold the largest.
std::vector<std::byte> ArrayHeader(const SampleField& field) {
  std::vector<std::byte> head;
  Put(head, CodeOf(field.dtype));
  const std::int64_t largest = *std::max_element(field.shape.begin(), field.shape.end());
  const int log2_bytes = largest < 1 << 8                  ? 0
                         : largest < 1 << 16               ? 1
                         : largest < std::int64_t{1} << 32 ? 2
                                                           : 3;
  Put(head, static_cast<std::uint8_t>(field.shape.size() << 2 | static_cast<unsigned>(log2_bytes)));
  for (const std::int64_t size : field.shape) {
    const auto bytes = std::as_bytes(std::span(&size, 1)).first(std::size_t{1} << log2_bytes);
    head.insert(head.end(), bytes.begin(), bytes.end());
  }
  return head;
}

constexpr std::int64_t kRoomForHeader = 1 << 20;  // of a shard whose columns are not known yet

// Keeps the samples in memory until Commit: their table and the configuration lie before them.
class MdsWriter final : public ShardWriter {
 public:
  explicit MdsWriter(DurableFile file) : file_(std::move(file)), config_(Config()) {}

  Status Append(const Sample& sample) override {
    const Status checked = Check(sample);
    if (!checked.ok()) {
      return Annotate(checked, StrCat(file_.path(), ": sample \"", sample.key, "\""));
    }
    if (count_ == 0 || encodings_ != next_encodings_) {
      names_ = std::move(next_names_);
      encodings_ = std::move(next_encodings_);
      config_ = Config();
    }
    body_.insert(body_.end(), next_.begin(), next_.end());
    ends_.push_back(static_cast<std::uint32_t>(body_.size()));
    ++count_;
    return OkStatus();
  }

  std::int64_t size_bytes() const override {
    return HeaderBytes(count_) + static_cast<std::int64_t>(body_.size());
  }
  std::int64_t record_count() const override { return count_; }

  Status Commit() override {
    std::vector<std::byte> head;
    Put(head, static_cast<std::uint32_t>(count_));
    const auto begin = static_cast<std::uint32_t>(HeaderBytes(count_));
    Put(head, begin);
    for (const std::uint32_t end : ends_) Put(head, begin + end);
    AIT_RETURN_IF_ERROR(file_.Append(head));
    AIT_RETURN_IF_ERROR(file_.Append(std::as_bytes(std::span(config_))));
    AIT_RETURN_IF_ERROR(file_.Append(body_));
    return file_.Commit();
  }

 private:
  std::string Config() const {
    nlohmann::json sizes = nlohmann::json::array();
    for (const std::string& encoding : encodings_) {
      const auto fixed = ParseMdsEncoding(encoding)->fixed_bytes();
      sizes.push_back(fixed ? nlohmann::json(*fixed) : nlohmann::json());
    }
    return PythonJson({{"column_encodings", encodings_},
                       {"column_names", names_},
                       {"column_sizes", std::move(sizes)},
                       {"compression", nullptr},
                       {"format", "mds"},
                       {"hashes", nlohmann::json::array()},
                       {"size_limit", nullptr},
                       {"version", 2}});
  }
  std::int64_t HeaderBytes(std::int64_t count) const {
    return 4 + 4 * (count + 1) + static_cast<std::int64_t>(config_.size());
  }

  /// Encodes the sample into next_.
  Status Check(const Sample& sample) {
    std::vector<const SampleField*> fields;
    for (const SampleField& field : sample.fields) fields.push_back(&field);
    SampleField key = {.name = std::string(kMdsKeyColumn), .kind = FieldKind::kText};
    // A data set whose samples have keys has them all.
    if (count_ == 0 ? !sample.key.empty()
                    : std::find(names_.begin(), names_.end(), kMdsKeyColumn) != names_.end()) {
      key.value = ByteView(std::as_bytes(std::span(sample.key)), nullptr);
      fields.push_back(&key);
    }
    std::sort(fields.begin(), fields.end(),
              [](const SampleField* a, const SampleField* b) { return a->name < b->name; });
    next_names_.clear();
    next_encodings_.clear();
    next_.clear();
    std::vector<std::vector<std::byte>> heads;
    for (const SampleField* field : fields) {
      next_names_.push_back(field->name);
      next_encodings_.push_back(EncodingFor(*field));
      heads.push_back({});
      AIT_RETURN_IF_ERROR(CheckField(*field, next_encodings_.back(), heads.back()));
    }
    if (std::adjacent_find(next_names_.begin(), next_names_.end()) != next_names_.end()) {
      return InvalidArgumentError("two fields have the same name");
    }
    if (count_ > 0 && encodings_.size() == next_encodings_.size()) {
      for (std::size_t i = 0; i < encodings_.size(); ++i) {
        if (encodings_[i] != next_encodings_[i]) next_encodings_[i] = Plain(next_encodings_[i]);
      }
    }
    // A picture that is none makes bytes of the whole column.
    const auto fits = [](const std::string& old, const std::string& next) {
      return old == next || Plain(old) == next;
    };
    if (count_ > 0 && (names_ != next_names_ ||
                       !std::equal(encodings_.begin(), encodings_.end(), next_encodings_.begin(),
                                   next_encodings_.end(), fits))) {
      return InvalidArgumentError(
          "its fields are not those of the first sample, by name and kind; all samples of an MDS "
          "shard are alike");
    }
    for (std::size_t i = 0; i < fields.size(); ++i) {
      if (ParseMdsEncoding(next_encodings_[i])->fixed_bytes()) continue;
      const std::size_t size = heads[i].size() + fields[i]->value.size_bytes();
      if (size > std::numeric_limits<std::uint32_t>::max()) return TooLarge();
      Put(next_, static_cast<std::uint32_t>(size));
    }
    for (std::size_t i = 0; i < fields.size(); ++i) {
      next_.insert(next_.end(), heads[i].begin(), heads[i].end());
      const auto bytes = fields[i]->value.bytes();
      next_.insert(next_.end(), bytes.begin(), bytes.end());
    }
    const std::int64_t header = count_ == 0 ? kRoomForHeader : HeaderBytes(count_ + 1);
    if (header + static_cast<std::int64_t>(body_.size() + next_.size()) >
        std::int64_t{std::numeric_limits<std::uint32_t>::max()}) {
      return TooLarge();
    }
    return OkStatus();
  }

  static Status TooLarge() {
    return InvalidArgumentError(
        "the shard would have 4 GiB or more, which its 32-bit offsets cannot say; start another "
        "shard");
  }

  static Status CheckField(const SampleField& field, const std::string& encoding,
                           std::vector<std::byte>& head) {
    if (!IsUtf8(field.name)) return InvalidArgumentError("the name of a field is not UTF-8");
    if (field.kind == FieldKind::kText && !IsUtf8(field.value.text())) {
      return InvalidArgumentError("field \"", field.name, "\" is not UTF-8");
    }
    if (field.kind != FieldKind::kArray) return OkStatus();
    if (field.dtype == DType::kBFloat16 || field.dtype == DType::kBool) {
      return InvalidArgumentError("field \"", field.name, "\": MDS has no ", ait::Name(field.dtype),
                                  "; store float32 or uint8");
    }
    if (ArrayBytes(field.dtype, field.shape) !=
        static_cast<std::int64_t>(field.value.size_bytes())) {
      return InvalidArgumentError("field \"", field.name, "\" has not the bytes of its shape");
    }
    if (encoding != "ndarray") return OkStatus();
    if (field.value.is_empty() || field.shape.size() > 63) {
      return InvalidArgumentError("field \"", field.name,
                                  "\": an ndarray of MDS has 1 to 63 dimensions and at least one "
                                  "number");
    }
    head = ArrayHeader(field);
    return OkStatus();
  }

  DurableFile file_;
  std::vector<std::string> names_;  // sorted
  std::vector<std::string> encodings_;
  std::string config_;
  std::vector<std::byte> body_;
  std::vector<std::uint32_t> ends_;  // within body_
  std::int64_t count_ = 0;
  std::vector<std::string> next_names_;  // of the sample that is being added
  std::vector<std::string> next_encodings_;
  std::vector<std::byte> next_;
};

}  // namespace

std::string PythonJson(const nlohmann::json& value) {
  std::string text;
  Dump(value, text);
  return text;
}

StatusOr<std::unique_ptr<ShardWriter>> CreateMdsShard(const std::string& path,
                                                      const ShardWriterOptions&) {
  AIT_ASSIGN_OR_RETURN(DurableFile file, DurableFile::Create(path));
  return std::make_unique<MdsWriter>(std::move(file));
}

}  // namespace internal
}  // namespace ait::inline v0

// SPDX-License-Identifier: Apache-2.0
// Text, CSV and JSON lines: a line is a sample.
#include "data/format/lines_internal.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <utility>

#include "data/format/format_entry_internal.h"
#include "data/format/format_util_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

// Finds the ends of lines in the blocks of a file.
class LineFinder {
 public:
  LineFinder(LineRules rules, std::string_view url, std::int64_t max_record_bytes)
      : rules_(rules), url_(url), max_record_bytes_(max_record_bytes) {}

  Status Scan(std::string_view block) {
    const char* const begin = block.data();
    const char* const end = begin + block.size();
    const char* at = begin;
    while (at < end) {
      if (is_quoted_) {
        const void* quote = std::memchr(at, '"', static_cast<std::size_t>(end - at));
        if (quote == nullptr) break;
        at = static_cast<const char*>(quote) + 1;
        is_quoted_ = false;
        continue;
      }
      const void* found = std::memchr(at, '\n', static_cast<std::size_t>(end - at));
      const char* line_end = found == nullptr ? end : static_cast<const char*>(found);
      if (rules_.quotes_hide_line_ends) {
        const void* quote = std::memchr(at, '"', static_cast<std::size_t>(line_end - at));
        if (quote != nullptr) {
          at = static_cast<const char*>(quote) + 1;
          is_quoted_ = true;
          continue;
        }
      }
      if (found == nullptr) break;
      const char before = line_end > begin ? line_end[-1] : last_;
      AIT_RETURN_IF_ERROR(End(offset_ + (line_end - begin), before == '\r'));
      at = line_end + 1;
      line_begin_ = offset_ + (at - begin);
    }
    if (!block.empty()) last_ = block.back();
    offset_ += static_cast<std::int64_t>(block.size());
    return OkStatus();
  }

  StatusOr<std::vector<RecordExtent>> Finish() {
    if (is_quoted_) {
      return DataLossError(url_, " is truncated or damaged: a quote in the record at byte ",
                           line_begin_, " is open at its end");
    }
    if (line_begin_ < offset_) AIT_RETURN_IF_ERROR(End(offset_, last_ == '\r'));
    return std::move(lines_);
  }

  void SkipMark() { line_begin_ = static_cast<std::int64_t>(kByteOrderMark.size()); }

 private:
  Status End(std::int64_t end, bool has_return) {
    const std::int64_t length = end - line_begin_ - (has_return && end > line_begin_ ? 1 : 0);
    if (length > max_record_bytes_) {
      return InvalidArgumentError(url_, ": the line at byte ", line_begin_, " has ", length,
                                  " bytes, allowed are ", max_record_bytes_, " (max_record_bytes)");
    }
    if (length > 0 || !rules_.skips_empty) lines_.push_back({line_begin_, length});
    return OkStatus();
  }

  const LineRules rules_;
  const std::string_view url_;
  const std::int64_t max_record_bytes_;
  std::int64_t offset_ = 0;  // of the block in the file
  std::int64_t line_begin_ = 0;
  char last_ = '\0';  // byte before the block
  bool is_quoted_ = false;
  std::vector<RecordExtent> lines_;
};

// A shard of lines; what becomes of one is up to the derived class.
class LineShard : public ShardReader {
 public:
  LineShard(std::string_view format, std::shared_ptr<const StoredObject> object,
            std::vector<RecordExtent> lines)
      : format_(format), object_(std::move(object)), lines_(std::move(lines)) {}

  std::string_view format() const final { return format_; }
  const StoredObject& object() const final { return *object_; }
  std::int64_t record_count() const final { return static_cast<std::int64_t>(lines_.size()); }
  RecordExtent extent(std::int64_t record) const final {
    return lines_[static_cast<std::size_t>(record)];
  }
  Status Decode(std::int64_t record, const ByteView& bytes, Sample& sample) const final {
    const Status status = DecodeLine(bytes, sample);
    if (!status.ok()) return Annotate(status, DescribeRecord(*this, record));
    SampleBuilder(sample).SetKey(record);
    return OkStatus();
  }

 private:
  virtual Status DecodeLine(const ByteView& bytes, Sample& sample) const = 0;

  const std::string_view format_;
  const std::shared_ptr<const StoredObject> object_;
  const std::vector<RecordExtent> lines_;
};

class TextShard final : public LineShard {
  using LineShard::LineShard;
  Status DecodeLine(const ByteView& bytes, Sample& sample) const override {
    if (!IsUtf8(bytes.text())) return InvalidArgumentError("it is not UTF-8");
    SampleBuilder builder(sample);
    builder.AddBytes("text", bytes, FieldKind::kText);
    builder.Finish();
    return OkStatus();
  }
};

class JsonShard final : public LineShard {
  using LineShard::LineShard;
  Status DecodeLine(const ByteView& bytes, Sample& sample) const override {
    return DecodeJsonLine(bytes, sample);
  }
};

class CsvShard final : public LineShard {
 public:
  CsvShard(std::shared_ptr<const StoredObject> object, std::vector<RecordExtent> lines,
           std::vector<std::string> columns)
      : LineShard("csv", std::move(object), std::move(lines)), columns_(std::move(columns)) {}

 private:
  Status DecodeLine(const ByteView& bytes, Sample& sample) const override {
    AIT_ASSIGN_OR_RETURN(const std::vector<ByteView> fields, SplitCsv(bytes));
    if (fields.size() != columns_.size()) {
      return InvalidArgumentError("it has ", fields.size(), " fields, the file has ",
                                  columns_.size(), " columns");
    }
    SampleBuilder builder(sample);
    for (std::size_t i = 0; i < fields.size(); ++i) {
      if (!IsUtf8(fields[i].text())) {
        return InvalidArgumentError("column \"", columns_[i], "\" is not UTF-8");
      }
      builder.AddBytes(columns_[i], fields[i], FieldKind::kText);
    }
    builder.Finish();
    return OkStatus();
  }

  const std::vector<std::string> columns_;
};

template <typename LineShardType>
StatusOr<std::unique_ptr<ShardReader>> OpenLines(std::string_view format,
                                                 std::shared_ptr<const StoredObject> object,
                                                 const ShardOptions& options, LineRules rules) {
  AIT_ASSIGN_OR_RETURN(std::vector<RecordExtent> lines,
                       FindLines(*object, rules, options.max_record_bytes));
  return std::make_unique<LineShardType>(format, std::move(object), std::move(lines));
}

StatusOr<std::unique_ptr<ShardReader>> OpenText(std::shared_ptr<const StoredObject> object,
                                                const ShardOptions& options,
                                                std::shared_ptr<const StoredObject>) {
  return OpenLines<TextShard>("text", std::move(object), options, {});
}

StatusOr<std::unique_ptr<ShardReader>> OpenJsonLines(std::shared_ptr<const StoredObject> object,
                                                     const ShardOptions& options,
                                                     std::shared_ptr<const StoredObject>) {
  return OpenLines<JsonShard>("jsonl", std::move(object), options, {.skips_empty = true});
}

StatusOr<std::unique_ptr<ShardReader>> OpenCsv(std::shared_ptr<const StoredObject> object,
                                               const ShardOptions& options,
                                               std::shared_ptr<const StoredObject>) {
  const std::string& url = object->info().url;
  AIT_ASSIGN_OR_RETURN(std::vector<RecordExtent> lines,
                       FindLines(*object, {.quotes_hide_line_ends = true, .skips_empty = true},
                                 options.max_record_bytes));
  if (lines.empty()) return DataLossError("CSV file ", url, " is empty");
  AIT_ASSIGN_OR_RETURN(
      const ByteView first,
      ReadRange(*object, lines[0].offset_bytes, lines[0].length_bytes, options.max_record_bytes));
  const StatusOr<std::vector<ByteView>> fields = SplitCsv(first);
  if (!fields.ok()) return Annotate(fields.status(), StrCat("first line of CSV file ", url));
  std::vector<std::string> columns;
  std::set<std::string> seen;
  for (std::size_t i = 0; i < fields->size(); ++i) {
    columns.push_back(options.csv_header ? std::string((*fields)[i].text()) : StrCat("column", i));
    if (!seen.insert(columns.back()).second) {
      return InvalidArgumentError("CSV file ", url, " has the column \"", columns.back(),
                                  "\" twice; if its first line is no header, set csv_header");
    }
  }
  if (options.csv_header) lines.erase(lines.begin());
  return std::make_unique<CsvShard>(std::move(object), std::move(lines), std::move(columns));
}

template <const char* kExtensions>
int MatchName(std::string_view url, std::span<const std::byte>) {
  for (std::string_view rest = kExtensions; !rest.empty();) {
    const std::size_t space = std::min(rest.find(' '), rest.size());
    if (HasExtension(url, rest.substr(0, space))) return 1;
    rest.remove_prefix(std::min(space + 1, rest.size()));
  }
  return 0;
}

constexpr char kCsvNames[] = ".csv";
constexpr char kJsonNames[] = ".jsonl .ndjson";
constexpr char kTextNames[] = ".txt";

}  // namespace

StatusOr<std::vector<RecordExtent>> FindLines(const StoredObject& object, LineRules rules,
                                              std::int64_t max_record_bytes) {
  AIT_ASSIGN_OR_RETURN(const auto blocks, object.Stream({}));
  LineFinder finder(rules, object.info().url, max_record_bytes);
  bool is_first = true;
  while (true) {
    AIT_ASSIGN_OR_RETURN(const ByteView block, blocks->Next());
    if (block.is_empty()) return finder.Finish();
    if (std::exchange(is_first, false) && block.text().starts_with(kByteOrderMark)) {
      finder.SkipMark();
    }
    AIT_RETURN_IF_ERROR(finder.Scan(block.text()));
  }
}

StatusOr<std::vector<ByteView>> SplitCsv(const ByteView& record) {
  const std::string_view text = record.text();
  std::vector<ByteView> fields;
  std::size_t at = 0;
  while (true) {
    if (at < text.size() && text[at] == '"') {
      const std::size_t begin = ++at;
      std::size_t doubled = 0;
      for (;; ++at) {
        at = text.find('"', at);
        if (at == std::string_view::npos) return InvalidArgumentError("its last quote is open");
        if (at + 1 == text.size() || text[at + 1] != '"') break;
        ++doubled;
        ++at;
      }
      ByteView field = record.Slice(begin, at - begin);
      if (doubled > 0) {
        std::string plain;
        for (std::size_t i = 0; i < field.size_bytes(); ++i) {
          plain += field.text()[i];
          if (field.text()[i] == '"') ++i;
        }
        field = ByteView::Copy(plain);
      }
      fields.push_back(std::move(field));
      ++at;
      if (at < text.size() && text[at] != ',') {
        return InvalidArgumentError("a field goes on after its closing quote, at byte ", at,
                                    " of the line");
      }
    } else {
      const std::size_t end = std::min(text.find(',', at), text.size());
      const std::size_t quote = text.find('"', at);
      if (quote < end) {
        return InvalidArgumentError("a quote stands within a field, at byte ", quote,
                                    " of the line; quote the whole field and double it");
      }
      fields.push_back(record.Slice(at, end - at));
      at = end;
    }
    if (at >= text.size()) return fields;
    ++at;  // the comma
  }
}

extern const ShardFormat kCsvFormat;
const ShardFormat kCsvFormat = {.name = "csv",
                                .summary = "comma-separated values (RFC 4180)",
                                .match = MatchName<kCsvNames>,
                                .open = OpenCsv,
                                .create = nullptr};
extern const ShardFormat kJsonLinesFormat;
const ShardFormat kJsonLinesFormat = {.name = "jsonl",
                                      .summary = "a JSON object in every line",
                                      .match = MatchName<kJsonNames>,
                                      .open = OpenJsonLines,
                                      .create = nullptr};
extern const ShardFormat kTextFormat;
const ShardFormat kTextFormat = {.name = "text",
                                 .summary = "lines of UTF-8",
                                 .match = MatchName<kTextNames>,
                                 .open = OpenText,
                                 .create = nullptr};

}  // namespace internal
}  // namespace ait::inline v0

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstring>
#include <utility>

#include "data/format/rows_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

struct Table {
  StoredArray array;
  std::vector<std::int64_t> row_shape;
  std::int64_t row_bytes = 0;
  std::int64_t offset_in_record = 0;
};

// Shows the rows of several arrays beside each other.
class Interleaved final : public StoredObject {
 public:
  Interleaved(ObjectInfo info, std::vector<Table> tables, std::int64_t record_bytes)
      : info_(std::move(info)), tables_(std::move(tables)), record_bytes_(record_bytes) {}

  const ObjectInfo& info() const override { return info_; }

  Status ReadAt(std::int64_t offset_bytes, std::span<std::byte> out) const override {
    AIT_RETURN_IF_ERROR(CheckRange(info_, offset_bytes, static_cast<std::int64_t>(out.size())));
    if (out.empty()) return OkStatus();
    const std::int64_t end = offset_bytes + static_cast<std::int64_t>(out.size());
    const std::int64_t first = offset_bytes / record_bytes_;
    const std::int64_t last = (end - 1) / record_bytes_;
    std::vector<std::byte> rows;
    for (const Table& table : tables_) {
      // All rows of the range by one read, then each to its place; of the first and the last record
      // only what the range covers.
      const std::int64_t count = last - first + 1;
      rows.resize(static_cast<std::size_t>(count * table.row_bytes));
      AIT_RETURN_IF_ERROR(
          table.array.object->ReadAt(table.array.offset_bytes + first * table.row_bytes, rows));
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t begin = (first + i) * record_bytes_ + table.offset_in_record;
        const std::int64_t from = std::max(begin, offset_bytes);
        const std::int64_t to = std::min(begin + table.row_bytes, end);
        if (from >= to) continue;
        std::memcpy(out.data() + (from - offset_bytes),
                    rows.data() + i * table.row_bytes + (from - begin),
                    static_cast<std::size_t>(to - from));
      }
    }
    return OkStatus();
  }

 private:
  const ObjectInfo info_;
  const std::vector<Table> tables_;
  const std::int64_t record_bytes_;
};

class Rows final : public ShardReader {
 public:
  Rows(std::string_view format, std::shared_ptr<const StoredObject> object,
       std::vector<Table> tables, std::int64_t count, std::int64_t begin_bytes,
       std::int64_t record_bytes)
      : format_(format),
        object_(std::move(object)),
        tables_(std::move(tables)),
        count_(count),
        begin_bytes_(begin_bytes),
        record_bytes_(record_bytes) {}

  std::string_view format() const override { return format_; }
  const StoredObject& object() const override { return *object_; }
  std::int64_t record_count() const override { return count_; }
  RecordExtent extent(std::int64_t record) const override {
    return {.offset_bytes = begin_bytes_ + record * record_bytes_, .length_bytes = record_bytes_};
  }

  Status Decode(std::int64_t record, const ByteView& bytes, Sample& sample) const override {
    if (static_cast<std::int64_t>(bytes.size_bytes()) != record_bytes_) {
      return DataLossError(DescribeRecord(*this, record), ": ", bytes.size_bytes(), " bytes of ",
                           record_bytes_);
    }
    SampleBuilder builder(sample);
    builder.SetKey(record);
    for (const Table& table : tables_) {
      const Status added =
          builder.AddArray(table.array.name, table.array.type, table.row_shape,
                           bytes.Slice(static_cast<std::size_t>(table.offset_in_record),
                                       static_cast<std::size_t>(table.row_bytes)));
      if (!added.ok()) return Annotate(added, DescribeRecord(*this, record));
    }
    builder.Finish();
    return OkStatus();
  }

 private:
  const std::string_view format_;
  const std::shared_ptr<const StoredObject> object_;
  const std::vector<Table> tables_;
  const std::int64_t count_;
  const std::int64_t begin_bytes_;
  const std::int64_t record_bytes_;
};

}  // namespace

StatusOr<std::unique_ptr<ShardReader>> ShardOfRows(std::string_view format,
                                                   std::shared_ptr<const StoredObject> object,
                                                   std::vector<StoredArray> arrays,
                                                   const ShardOptions& options) {
  const ObjectInfo& info = object->info();
  std::vector<Table> tables;
  std::int64_t rows = 0;
  std::int64_t record_bytes = 0;
  for (StoredArray& array : arrays) {
    const std::string what = StrCat(info.url, ": array \"", array.name, "\"");
    const std::int64_t bytes = ArrayBytes(array.type.dtype, array.shape);
    const std::int64_t size = array.object->info().size_bytes;
    if (bytes < 0 || array.offset_bytes > size || bytes > size - array.offset_bytes) {
      return DataLossError(what, " is truncated: it does not lie within ", size, " bytes");
    }
    const std::int64_t first = array.shape.empty() ? 1 : array.shape.front();
    if (tables.empty()) {
      rows = first;
    } else if (rows != first) {
      return InvalidArgumentError(what, " has ", first, " rows, the one before it ", rows,
                                  "; arrays of one file must have the same first dimension");
    }
    Table table;
    if (!array.shape.empty()) table.row_shape.assign(array.shape.begin() + 1, array.shape.end());
    table.row_bytes = ArrayBytes(array.type.dtype, table.row_shape);
    table.offset_in_record = record_bytes;
    if (table.row_bytes < 0 || __builtin_add_overflow(record_bytes, table.row_bytes, &record_bytes))
      return DataLossError(what, " has rows that no file can hold");
    if (table.row_bytes == 0 && rows > 0) {
      return InvalidArgumentError(what, " has rows without numbers");
    }
    table.array = std::move(array);
    tables.push_back(std::move(table));
  }
  if (record_bytes > options.max_record_bytes) {
    return InvalidArgumentError(info.url, ": a row has ", record_bytes, " bytes, allowed are ",
                                options.max_record_bytes, " (max_record_bytes)");
  }
  std::int64_t begin_bytes = tables.front().array.offset_bytes;
  std::shared_ptr<const StoredObject> shown = tables.front().array.object;
  if (tables.size() > 1) {
    // No overflow: every array lies in an object, and so do all of them together.
    begin_bytes = 0;
    shown = std::make_shared<Interleaved>(
        ObjectInfo{.url = info.url, .size_bytes = rows * record_bytes, .version = info.version},
        tables, record_bytes);
  }
  return std::make_unique<Rows>(format, std::move(shown), std::move(tables), rows, begin_bytes,
                                record_bytes);
}

}  // namespace internal
}  // namespace ait::inline v0

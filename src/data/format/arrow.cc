// SPDX-License-Identifier: Apache-2.0
// Parquet and Arrow IPC files: every row is a sample. The work is done by a plug-in that links the
// library of Arrow; the table is unpacked into memory when it is opened.
#include <algorithm>
#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "data/format/arrow_plugin_internal.h"
#include "data/format/format_entry_internal.h"
#include "device/dynamic_library.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::int64_t kLimitBytes = std::int64_t{4} << 30;

StatusOr<UnpackTableFunction> Plugin() {
  // Where the build put it, and where the installation does.
  std::string tried;
  for (const char* path : {AIT_ARROW_PLUGIN_BUILT, AIT_ARROW_PLUGIN_INSTALLED}) {
    StatusOr<DynamicLibrary> library = DynamicLibrary::Open(path, "", {});
    if (!library.ok()) {
      tried += StrCat(tried.empty() ? "" : "; ", Message(library.status()));
      continue;
    }
    if (void* function = library->Find(kUnpackTableName)) {
      return reinterpret_cast<UnpackTableFunction>(function);
    }
    tried += StrCat(tried.empty() ? "" : "; ", path, " is of another version of ait");
  }
  return FailedPreconditionError("no plug-in for Parquet and Arrow files: ", tried,
                                 "; build ait where Apache Arrow is found (AIT_ARROW_ROOT)");
}

class TableShard final : public ShardReader {
 public:
  TableShard(std::string_view format, ObjectInfo info, UnpackedTable table)
      : format_(format),
        table_(std::move(table)),
        object_(MemoryObject(std::move(info.url), table_.rows, std::move(info.version))) {}

  std::string_view format() const override { return format_; }
  const StoredObject& object() const override { return *object_; }
  std::int64_t record_count() const override { return std::ssize(table_.row_begins) - 1; }
  RecordExtent extent(std::int64_t record) const override {
    const auto at = static_cast<std::size_t>(record);
    return {table_.row_begins[at], table_.row_begins[at + 1] - table_.row_begins[at]};
  }

  // What is decoded was made by the plug-in in this process, so its lengths are right.
  Status Decode(std::int64_t record, const ByteView& bytes, Sample& sample) const override {
    sample.id = record;  // as SampleBuilder::SetKey
    sample.key = std::to_string(record);
    sample.fields.clear();
    std::size_t at = 0;
    const auto take = [&]<typename T>(T& number) {
      std::memcpy(&number, bytes.data() + at, sizeof(T));
      at += sizeof(T);
    };
    for (const TableColumn& column : table_.columns) {
      std::uint64_t length = 0;
      take(length);
      if (length == UnpackedTable::kNull) continue;
      SampleField field{.name = column.name, .kind = column.kind, .dtype = column.dtype};
      if (column.kind == FieldKind::kArray) {
        std::int64_t dimensions = 0;
        take(dimensions);
        field.shape.resize(static_cast<std::size_t>(dimensions));
        for (std::int64_t& size : field.shape) take(size);
      }
      field.value = bytes.Slice(at, length);
      at = (at + length + 7) / 8 * 8;
      sample.fields.push_back(std::move(field));
    }
    return OkStatus();
  }

 private:
  const std::string_view format_;
  const UnpackedTable table_;
  const std::shared_ptr<const StoredObject> object_;
};

StatusOr<std::unique_ptr<ShardReader>> OpenTable(std::string_view format, const char* kind,
                                                 const StoredObject& object) {
  AIT_ASSIGN_OR_RETURN(const UnpackTableFunction unpack, Plugin());
  UnpackedTable table;
  Status status;
  unpack(object, kind, kLimitBytes, table, status);
  AIT_RETURN_IF_ERROR(status);
  return std::make_unique<TableShard>(format, object.info(), std::move(table));
}

std::string_view Text(std::span<const std::byte> head) {
  return {reinterpret_cast<const char*>(head.data()), head.size()};
}

constexpr std::string_view kStreamMark = "\xff\xff\xff\xff";

int MatchParquet(std::string_view url, std::span<const std::byte> head) {
  if (Text(head).starts_with("PAR1")) return 2;
  return url.ends_with(".parquet") ? 1 : 0;
}

int MatchArrow(std::string_view url, std::span<const std::byte> head) {
  const bool is_named = url.ends_with(".arrow") || url.ends_with(".feather");
  if (Text(head).starts_with("ARROW1") || (is_named && Text(head).starts_with(kStreamMark)))
    return 2;
  return is_named ? 1 : 0;
}

StatusOr<std::unique_ptr<ShardReader>> OpenParquet(std::shared_ptr<const StoredObject> object,
                                                   const ShardOptions&,
                                                   std::shared_ptr<const StoredObject>) {
  return OpenTable("parquet", "parquet", *object);
}

StatusOr<std::unique_ptr<ShardReader>> OpenArrow(std::shared_ptr<const StoredObject> object,
                                                 const ShardOptions&,
                                                 std::shared_ptr<const StoredObject>) {
  std::array<std::byte, 4> head = {};
  const auto length = std::min<std::int64_t>(object->info().size_bytes, std::ssize(head));
  AIT_RETURN_IF_ERROR(object->ReadAt(0, std::span(head).first(static_cast<std::size_t>(length))));
  return OpenTable("arrow", Text(head) == kStreamMark ? "arrow-stream" : "arrow", *object);
}

}  // namespace

extern const ShardFormat kParquetFormat = {
    .name = "parquet",
    .summary = "Apache Parquet: a row is a sample; unpacked into memory",
    .match = MatchParquet,
    .open = OpenParquet,
};
extern const ShardFormat kArrowFormat = {
    .name = "arrow",
    .summary = "Arrow IPC, file or stream (Feather, Hugging Face datasets); unpacked into memory",
    .match = MatchArrow,
    .open = OpenArrow,
};

}  // namespace ait::inline v0::internal

// SPDX-License-Identifier: Apache-2.0
// The plug-in: reads Parquet and Arrow IPC by the library of Arrow, and turns columns into rows.
#include "data/format/arrow_plugin_internal.h"

#include <arrow/api.h>
#include <arrow/io/api.h>
#include <arrow/ipc/api.h>
#include <parquet/arrow/reader.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>

namespace ait::inline v0::internal {
namespace {

Status FromArrow(const StoredObject& object, const arrow::Status& status) {
  if (status.ok()) return OkStatus();
  const std::string text = StrCat(object.info().url, ": ", status.ToString());
  if (status.IsNotImplemented()) return UnimplementedError(text);
  if (status.IsOutOfMemory()) return ResourceExhaustedError(text);
  return DataLossError(text);
}

#define AIT_ARROW_OR_RETURN(target, expression)                               \
  auto AIT_INTERNAL_CONCAT(arrow_, __LINE__) = (expression);                  \
  if (!AIT_INTERNAL_CONCAT(arrow_, __LINE__).ok())                            \
    return FromArrow(object, AIT_INTERNAL_CONCAT(arrow_, __LINE__).status()); \
  target = *std::move(AIT_INTERNAL_CONCAT(arrow_, __LINE__))

// An object of ait as a file of Arrow; remembers the error of the object itself.
class ObjectFile final : public arrow::io::RandomAccessFile {
 public:
  explicit ObjectFile(const StoredObject& object) : object_(object) {}

  arrow::Status Close() override {
    is_closed_ = true;
    return arrow::Status::OK();
  }
  bool closed() const override { return is_closed_; }
  arrow::Result<std::int64_t> Tell() const override { return position_; }
  arrow::Status Seek(std::int64_t position) override {
    position_ = position;
    return arrow::Status::OK();
  }
  arrow::Result<std::int64_t> GetSize() override { return object_.info().size_bytes; }

  arrow::Result<std::int64_t> ReadAt(std::int64_t position, std::int64_t count,
                                     void* out) override {
    const std::int64_t length =
        std::clamp<std::int64_t>(object_.info().size_bytes - position, 0, count);
    const Status status =
        object_.ReadAt(position, {static_cast<std::byte*>(out), static_cast<std::size_t>(length)});
    if (!status.ok()) {
      status_ = status;
      return arrow::Status::IOError(Message(status));
    }
    return length;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> ReadAt(std::int64_t position,
                                                       std::int64_t count) override {
    ARROW_ASSIGN_OR_RAISE(auto buffer, arrow::AllocateResizableBuffer(count));
    ARROW_ASSIGN_OR_RAISE(const std::int64_t got, ReadAt(position, count, buffer->mutable_data()));
    ARROW_RETURN_NOT_OK(buffer->Resize(got));
    return std::shared_ptr<arrow::Buffer>(std::move(buffer));
  }
  arrow::Result<std::int64_t> Read(std::int64_t count, void* out) override {
    ARROW_ASSIGN_OR_RAISE(const std::int64_t got, ReadAt(position_, count, out));
    position_ += got;
    return got;
  }
  arrow::Result<std::shared_ptr<arrow::Buffer>> Read(std::int64_t count) override {
    ARROW_ASSIGN_OR_RAISE(auto buffer, ReadAt(position_, count));
    position_ += buffer->size();
    return buffer;
  }

  /// The first error of the object, which says more than what Arrow makes of it.
  const Status& status() const { return status_; }

 private:
  const StoredObject& object_;
  std::int64_t position_ = 0;
  bool is_closed_ = false;
  Status status_;
};

std::optional<DType> NumberOf(const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::INT8:
      return DType::kInt8;
    case arrow::Type::UINT8:
      return DType::kUInt8;
    case arrow::Type::INT16:
      return DType::kInt16;
    case arrow::Type::UINT16:
      return DType::kUInt16;
    case arrow::Type::INT32:
    case arrow::Type::DATE32:
    case arrow::Type::TIME32:
      return DType::kInt32;
    case arrow::Type::UINT32:
      return DType::kUInt32;
    case arrow::Type::INT64:
    case arrow::Type::DATE64:
    case arrow::Type::TIME64:
    case arrow::Type::TIMESTAMP:
    case arrow::Type::DURATION:
      return DType::kInt64;
    case arrow::Type::HALF_FLOAT:
      return DType::kFloat16;
    case arrow::Type::FLOAT:
      return DType::kFloat32;
    case arrow::Type::DOUBLE:
      return DType::kFloat64;
    default:
      return std::nullopt;
  }
}

// The innermost type of nested lists.
const arrow::DataType& InnermostOf(const arrow::DataType& type) {
  switch (type.id()) {
    case arrow::Type::LIST:
    case arrow::Type::LARGE_LIST:
    case arrow::Type::FIXED_SIZE_LIST:
      return InnermostOf(*static_cast<const arrow::BaseListType&>(type).value_type());
    default:
      return type;
  }
}

// A column without structs in it, and how its cells become fields.
struct FlatColumn {
  TableColumn column;
  std::shared_ptr<arrow::Array> cells;
};

Status Flatten(const std::string& name, const std::shared_ptr<arrow::Array>& array,
               std::vector<FlatColumn>& out) {
  const arrow::DataType& type = *array->type();
  switch (type.id()) {
    case arrow::Type::STRUCT: {
      // With the nulls of the struct applied to its fields.
      auto fields = static_cast<const arrow::StructArray&>(*array).Flatten();
      if (!fields.ok()) return DataLossError(fields.status().ToString());
      for (int i = 0; i < type.num_fields(); ++i) {
        AIT_RETURN_IF_ERROR(Flatten(StrCat(name, ".", type.field(i)->name()),
                                    (*fields)[static_cast<std::size_t>(i)], out));
      }
      return OkStatus();
    }
    case arrow::Type::DICTIONARY: {
      const auto& value = *static_cast<const arrow::DictionaryType&>(type).value_type();
      if (!arrow::is_base_binary_like(value.id())) break;
      out.push_back(
          {{name, arrow::is_string(value.id()) ? FieldKind::kText : FieldKind::kBytes}, array});
      return OkStatus();
    }
    case arrow::Type::STRING:
    case arrow::Type::LARGE_STRING:
      out.push_back({{name, FieldKind::kText}, array});
      return OkStatus();
    case arrow::Type::BINARY:
    case arrow::Type::LARGE_BINARY:
    case arrow::Type::FIXED_SIZE_BINARY:
      out.push_back({{name, FieldKind::kBytes}, array});
      return OkStatus();
    default:
      break;
  }
  const arrow::DataType& inner = InnermostOf(type);
  if (inner.id() == arrow::Type::BOOL) {
    out.push_back({{name, FieldKind::kArray, DType::kBool}, array});
    return OkStatus();
  }
  if (const auto number = NumberOf(inner)) {
    out.push_back({{name, FieldKind::kArray, *number}, array});
    return OkStatus();
  }
  return UnimplementedError(
      "column '", name, "' is of type ", type.ToString(),
      ", which no field can hold; leave it out or convert it when the file is "
      "written");
}

// The numbers of cells [begin, end) of an array of numbers or truth values.
Status AppendNumbers(const arrow::Array& array, std::int64_t begin, std::int64_t end,
                     std::string& out) {
  for (std::int64_t i = begin; i < end; ++i) {
    if (array.IsNull(i)) return DataLossError("a list holds a null");
  }
  if (array.type_id() == arrow::Type::BOOL) {
    const auto& bits = static_cast<const arrow::BooleanArray&>(array);
    for (std::int64_t i = begin; i < end; ++i) out += static_cast<char>(bits.Value(i));
    return OkStatus();
  }
  const auto width = static_cast<std::int64_t>(SizeOf(*NumberOf(*array.type())));
  const auto& values = static_cast<const arrow::PrimitiveArray&>(array);
  if (begin == end) return OkStatus();
  const auto* data = values.values()->data();
  out.append(reinterpret_cast<const char*>(data + (values.offset() + begin) * width),
             static_cast<std::size_t>((end - begin) * width));
  return OkStatus();
}

// Cells [begin, end) of an array that may be lists of lists; they must form a box.
Status AppendBox(const arrow::Array& array, std::int64_t begin, std::int64_t end,
                 std::vector<std::int64_t>& shape, std::string& out) {
  const auto lists = [&](const auto& list) -> Status {
    std::int64_t size = -1, first = 0, last = 0;
    for (std::int64_t i = begin; i < end; ++i) {
      if (list.IsNull(i)) return DataLossError("a list holds a null");
      const std::int64_t length = list.value_length(i);
      if (size >= 0 && length != size) {
        return DataLossError("lists of ", size, " and of ", length, " values in one field");
      }
      if (size < 0) first = last = list.value_offset(i);
      if (list.value_offset(i) != last) return DataLossError("lists with gaps between them");
      size = length;
      last += length;
    }
    shape.push_back(std::max<std::int64_t>(size, 0));
    return AppendBox(*list.values(), first, last, shape, out);
  };
  switch (array.type_id()) {
    case arrow::Type::LIST:
      return lists(static_cast<const arrow::ListArray&>(array));
    case arrow::Type::LARGE_LIST:
      return lists(static_cast<const arrow::LargeListArray&>(array));
    case arrow::Type::FIXED_SIZE_LIST:
      return lists(static_cast<const arrow::FixedSizeListArray&>(array));
    default:
      return AppendNumbers(array, begin, end, out);
  }
}

std::string_view BytesOf(const arrow::Array& array, std::int64_t i) {
  switch (array.type_id()) {
    case arrow::Type::STRING:
    case arrow::Type::BINARY:
      return static_cast<const arrow::BinaryArray&>(array).GetView(i);
    case arrow::Type::LARGE_STRING:
    case arrow::Type::LARGE_BINARY:
      return static_cast<const arrow::LargeBinaryArray&>(array).GetView(i);
    case arrow::Type::FIXED_SIZE_BINARY:
      return static_cast<const arrow::FixedSizeBinaryArray&>(array).GetView(i);
    default: {
      const auto& dictionary = static_cast<const arrow::DictionaryArray&>(array);
      return BytesOf(*dictionary.dictionary(), dictionary.GetValueIndex(i));
    }
  }
}

template <typename T>
void Put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

Status AppendCell(const FlatColumn& column, std::int64_t i, std::string& rows) {
  const arrow::Array& cells = *column.cells;
  if (cells.IsNull(i)) {
    Put(rows, UnpackedTable::kNull);
    return OkStatus();
  }
  if (column.column.kind == FieldKind::kArray) {
    std::vector<std::int64_t> shape;
    std::string values;
    AIT_RETURN_IF_ERROR(AppendBox(cells, i, i + 1, shape, values));
    Put(rows, static_cast<std::uint64_t>(values.size()));
    Put(rows, static_cast<std::int64_t>(shape.size()));
    for (const std::int64_t size : shape) Put(rows, size);
    rows += values;
  } else {
    const std::string_view bytes = BytesOf(cells, i);
    Put(rows, static_cast<std::uint64_t>(bytes.size()));
    rows += bytes;
  }
  rows.resize((rows.size() + 7) / 8 * 8);
  return OkStatus();
}

class Unpacker {
 public:
  Unpacker(const StoredObject& object, std::int64_t limit_bytes, UnpackedTable& table)
      : object_(object), limit_bytes_(limit_bytes), table_(table) {
    table_.row_begins = {0};
  }

  Status Add(const arrow::RecordBatch& batch) {
    if (const arrow::Status valid = batch.ValidateFull(); !valid.ok()) {
      return FromArrow(object_, valid);
    }
    std::vector<FlatColumn> columns;
    for (int i = 0; i < batch.num_columns(); ++i) {
      AIT_RETURN_IF_ERROR(
          Annotate(Flatten(batch.column_name(i), batch.column(i), columns), object_.info().url));
    }
    if (table_.columns.empty()) {
      for (const FlatColumn& column : columns) table_.columns.push_back(column.column);
    }
    for (std::int64_t row = 0; row < batch.num_rows(); ++row) {
      for (const FlatColumn& column : columns) {
        if (Status status = AppendCell(column, row, rows_); !status.ok()) {
          return Annotate(status, StrCat(object_.info().url, ": row ", table_.row_begins.size() - 1,
                                         ", column '", column.column.name, "'"));
        }
      }
      if (static_cast<std::int64_t>(rows_.size()) > limit_bytes_) {
        return InvalidArgumentError(object_.info().url, " unpacks to more than ", limit_bytes_,
                                    " bytes, which are held in memory; write smaller files, or "
                                    "convert it to another format in pieces");
      }
      table_.row_begins.push_back(static_cast<std::int64_t>(rows_.size()));
    }
    return OkStatus();
  }

  void Finish() {
    auto owner = std::make_shared<std::string>(std::move(rows_));
    const auto bytes = std::as_bytes(std::span(*owner));
    table_.rows = ByteView(bytes, std::move(owner));
  }

 private:
  const StoredObject& object_;
  const std::int64_t limit_bytes_;
  UnpackedTable& table_;
  std::string rows_;
};

Status AddAll(const StoredObject& object, arrow::RecordBatchReader& reader, Unpacker& unpacker) {
  while (true) {
    std::shared_ptr<arrow::RecordBatch> batch;
    AIT_RETURN_IF_ERROR(FromArrow(object, reader.ReadNext(&batch)));
    if (batch == nullptr) return OkStatus();
    AIT_RETURN_IF_ERROR(unpacker.Add(*batch));
  }
}

Status Unpack(const StoredObject& object, const std::shared_ptr<ObjectFile>& file,
              std::string_view kind, Unpacker& unpacker) {
  if (kind == "parquet") {
    AIT_ARROW_OR_RETURN(const std::unique_ptr<parquet::arrow::FileReader> reader,
                        parquet::arrow::OpenFile(file, arrow::default_memory_pool()));
    reader->set_use_threads(false);
    AIT_ARROW_OR_RETURN(const std::shared_ptr<arrow::RecordBatchReader> batches,
                        reader->GetRecordBatchReader());
    return AddAll(object, *batches, unpacker);
  }
  if (kind == "arrow-stream") {
    AIT_ARROW_OR_RETURN(const std::shared_ptr<arrow::RecordBatchReader> batches,
                        arrow::ipc::RecordBatchStreamReader::Open(file));
    return AddAll(object, *batches, unpacker);
  }
  AIT_ARROW_OR_RETURN(const std::shared_ptr<arrow::ipc::RecordBatchFileReader> reader,
                      arrow::ipc::RecordBatchFileReader::Open(file));
  for (int i = 0; i < reader->num_record_batches(); ++i) {
    AIT_ARROW_OR_RETURN(const std::shared_ptr<arrow::RecordBatch> batch,
                        reader->ReadRecordBatch(i));
    AIT_RETURN_IF_ERROR(unpacker.Add(*batch));
  }
  return OkStatus();
}

}  // namespace
}  // namespace ait::inline v0::internal

extern "C" __attribute__((visibility("default"))) void ait_arrow_unpack_table_v0(
    const ait::StoredObject& object, const char* kind, std::int64_t limit_bytes,
    ait::internal::UnpackedTable& table, ait::Status& status) {
  try {  // parquet throws
    ait::internal::Unpacker unpacker(object, limit_bytes, table);
    const auto file = std::make_shared<ait::internal::ObjectFile>(object);
    status = ait::internal::Unpack(object, file, kind, unpacker);
    if (!status.ok() && !file->status().ok()) status = file->status();
    unpacker.Finish();
  } catch (const std::bad_alloc&) {
    status = ait::ResourceExhaustedError(object.info().url, ": no memory to unpack it");
  } catch (const std::exception& error) {
    status = ait::DataLossError(object.info().url, ": ", error.what());
  }
}

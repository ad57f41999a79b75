// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "ait/data/format/mds.h"
#include "data/format/format_entry_internal.h"
#include "data/format/mds_internal.h"
#include "data/json_internal.h"
#include "data/little_endian_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

constexpr std::int64_t kMaxConfigBytes = 16 << 20;

class MdsShard final : public ShardReader {
 public:
  MdsShard(std::shared_ptr<const StoredObject> object, MdsHeader header,
           std::int64_t max_record_bytes)
      : object_(std::move(object)),
        offsets_(std::move(header.offsets)),
        columns_(std::move(header.columns)),
        max_record_bytes_(max_record_bytes) {
    for (const MdsColumn& column : columns_) {
      fixed_bytes_ += static_cast<std::size_t>(column.fixed_bytes.value_or(0));
      if (!column.fixed_bytes) size_table_bytes_ += 4;
      has_key_ = has_key_ || IsKey(column);
    }
  }

  std::string_view format() const override { return "mds"; }
  const StoredObject& object() const override { return *object_; }
  std::int64_t record_count() const override {
    return static_cast<std::int64_t>(offsets_.size()) - 1;
  }
  RecordExtent extent(std::int64_t record) const override {
    const auto at = static_cast<std::size_t>(record);
    return {.offset_bytes = offsets_[at], .length_bytes = offsets_[at + 1] - offsets_[at]};
  }

  std::int64_t max_record_bytes() const override { return max_record_bytes_; }
  Status Decode(std::int64_t record, const ByteView& bytes, Sample& sample) const override {
    const Status status = DecodeColumns(record, bytes, sample);
    return status.ok() ? status : Annotate(status, DescribeRecord(*this, record));
  }

 private:
  static bool IsKey(const MdsColumn& column) {
    return column.name == kMdsKeyColumn && column.encoding_name == "str";
  }

  Status DecodeColumns(std::int64_t record, const ByteView& bytes, Sample& sample) const {
    const std::size_t size = bytes.size_bytes();
    if (static_cast<std::int64_t>(size) > max_record_bytes_) {
      return InvalidArgumentError("its ", size, " bytes are more than max_record_bytes, ",
                                  max_record_bytes_);
    }
    if (size < size_table_bytes_ + fixed_bytes_) {
      return DataLossError("its ", size, " bytes are fewer than its columns must have");
    }
    SampleBuilder builder(sample);
    if (!has_key_) builder.SetKey(record);
    std::size_t entry = 0;
    std::size_t at = size_table_bytes_;
    for (const MdsColumn& column : columns_) {
      std::size_t length = 0;
      if (column.fixed_bytes) {
        length = static_cast<std::size_t>(*column.fixed_bytes);
      } else {
        length = LoadLittleEndian<std::uint32_t>(bytes.bytes(), entry);
        entry += 4;
      }
      if (length > size - at) {
        return DataLossError("column \"", column.name, "\" of ", length,
                             " bytes goes beyond the end of the sample");
      }
      const ByteView value = bytes.Slice(at, length);
      at += length;
      if (IsKey(column)) {
        builder.SetKey(value.text());
      } else {
        AIT_RETURN_IF_ERROR(AddMdsValue(column, value, builder));
      }
    }
    if (at != size) return DataLossError(size - at, " bytes follow its last column");
    builder.Finish();
    return OkStatus();
  }

  const std::shared_ptr<const StoredObject> object_;
  const std::vector<std::uint32_t> offsets_;
  const std::vector<MdsColumn> columns_;
  const std::int64_t max_record_bytes_;
  std::size_t size_table_bytes_ = 0;
  std::size_t fixed_bytes_ = 0;
  bool has_key_ = false;
};

// There is no magic number: a file is taken for MDS by its name.
int Match(std::string_view url, std::span<const std::byte>) {
  return HasExtension(url, ".mds") ? 1 : 0;
}

StatusOr<std::unique_ptr<ShardReader>> Open(std::shared_ptr<const StoredObject> object,
                                            const ShardOptions& options,
                                            std::shared_ptr<const StoredObject>) {
  return OpenMdsShard(std::move(object), options);
}

Status Finish(const std::string& directory, std::span<const std::string> files) {
  return WriteMdsIndex(directory, files);
}

}  // namespace

StatusOr<MdsHeader> ReadMdsHeader(const StoredObject& object) {
  const ObjectInfo& info = object.info();
  const auto damaged = [&](const auto&... parts) {
    return DataLossError("MDS shard ", info.url, " is truncated or damaged: ", parts...);
  };
  if (info.size_bytes < 4) return damaged("it has ", info.size_bytes, " bytes");
  AIT_ASSIGN_OR_RETURN(const ByteView number, ReadRange(object, 0, 4, 4));
  const std::int64_t count = LoadLittleEndian<std::uint32_t>(number.bytes(), 0);
  const std::int64_t table_bytes = (count + 1) * 4;
  if (table_bytes > info.size_bytes - 4) {
    return damaged("its table of ", count, " samples does not fit its ", info.size_bytes, " bytes");
  }
  AIT_ASSIGN_OR_RETURN(const ByteView table, ReadRange(object, 4, table_bytes, table_bytes));
  MdsHeader header;
  header.offsets.resize(static_cast<std::size_t>(count) + 1);
  std::memcpy(header.offsets.data(), table.data(), table.size_bytes());
  const std::int64_t config_bytes = header.offsets.front() - 4 - table_bytes;
  if (config_bytes < 0 || header.offsets.back() != info.size_bytes ||
      !std::is_sorted(header.offsets.begin(), header.offsets.end())) {
    return damaged("its offsets do not lead from its header to its end at byte ", info.size_bytes);
  }
  AIT_ASSIGN_OR_RETURN(const ByteView config,
                       ReadRange(object, 4 + table_bytes, config_bytes, kMaxConfigBytes));
  if (const Status shallow = CheckJsonDepth(config.text()); !shallow.ok()) {
    return damaged("its configuration: ", Message(shallow));
  }
  header.config = nlohmann::json::parse(config.text(), nullptr, false);
  StatusOr<std::vector<MdsColumn>> columns = ParseMdsColumns(header.config);
  if (!columns.ok()) return Annotate(columns.status(), StrCat("MDS shard ", info.url));
  header.columns = *std::move(columns);
  return header;
}

StatusOr<std::unique_ptr<ShardReader>> OpenMdsShard(std::shared_ptr<const StoredObject> object,
                                                    const ShardOptions& options) {
  AIT_ASSIGN_OR_RETURN(MdsHeader header, ReadMdsHeader(*object));
  return std::make_unique<MdsShard>(std::move(object), std::move(header), options.max_record_bytes);
}

extern const ShardFormat kMdsFormat;
const ShardFormat kMdsFormat = {.name = "mds",
                                .extension = ".mds",
                                .summary = "MosaicML Streaming shard",
                                .match = Match,
                                .open = Open,
                                .create = CreateMdsShard,
                                .file_prefix = "shard.",
                                .finish = Finish};

}  // namespace internal
}  // namespace ait::inline v0

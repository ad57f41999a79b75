// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_INDEXED_FILE_INTERNAL_H_
#define AIT_DATA_FORMAT_INDEXED_FILE_INTERNAL_H_

// A shard that is being written, with the index that will stand beside it.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "ait/base/durable_file.h"
#include "ait/base/status.h"
#include "ait/data/format/formats.h"
#include "ait/data/format/index.h"

namespace ait::inline v0 {
namespace internal {

/// Small writes are gathered. After a write has failed every call returns its error.
class IndexedFile {
 public:
  static StatusOr<IndexedFile> Create(const std::string& path, std::string_view format,
                                      const ShardWriterOptions& options);

  /// Bytes appended between the two are a record.
  void BeginRecord();
  void EndRecord();
  Status Append(std::span<const std::byte> bytes);
  Status Append(std::string_view text) { return Append(std::as_bytes(std::span(text))); }
  /// Appends bytes of zero.
  Status AppendZeros(std::int64_t count);

  const std::string& path() const { return file_.path(); }
  std::int64_t size_bytes() const {
    return file_.size_bytes() + static_cast<std::int64_t>(buffer_.size());
  }
  std::int64_t record_count() const { return static_cast<std::int64_t>(index_.extents.size()); }

  /// Makes the shard durable, then its index. An index of an older shard of this name is removed
  /// before the new shard has it.
  Status Commit();

 private:
  IndexedFile(DurableFile file, bool with_index)
      : file_(std::move(file)), with_index_(with_index) {}
  Status Flush();

  DurableFile file_;
  bool with_index_;
  ShardIndex index_;
  std::string buffer_;
  std::int64_t record_begin_ = 0;
  std::uint32_t checksum_ = 0;
  Status broken_;
};

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_INDEXED_FILE_INTERNAL_H_

// SPDX-License-Identifier: Apache-2.0
#include "data/format/indexed_file_internal.h"

#include <unistd.h>

#include <cerrno>
#include <utility>

#include "ait/data/crc32c.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

}  // namespace

StatusOr<IndexedFile> IndexedFile::Create(const std::string& path, std::string_view format,
                                          const ShardWriterOptions& options) {
  AIT_ASSIGN_OR_RETURN(DurableFile file, DurableFile::Create(path));
  IndexedFile indexed(std::move(file), options.with_index);
  indexed.index_.format = format;
  return indexed;
}

void IndexedFile::BeginRecord() {
  record_begin_ = size_bytes();
  checksum_ = 0;
}

void IndexedFile::EndRecord() {
  index_.extents.push_back({record_begin_, size_bytes() - record_begin_});
  index_.checksums.push_back(checksum_);
}

Status IndexedFile::Flush() {
  if (Status status = file_.Append(std::as_bytes(std::span(buffer_))); !status.ok()) {
    return broken_ = std::move(status);
  }
  buffer_.clear();
  return OkStatus();
}

Status IndexedFile::Append(std::span<const std::byte> bytes) {
  AIT_RETURN_IF_ERROR(broken_);
  checksum_ = Crc32c(bytes, checksum_);
  if (bytes.size() >= kBufferBytes) {
    AIT_RETURN_IF_ERROR(Flush());
    if (Status status = file_.Append(bytes); !status.ok()) return broken_ = std::move(status);
    return OkStatus();
  }
  buffer_.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  return buffer_.size() < kBufferBytes ? OkStatus() : Flush();
}

Status IndexedFile::AppendZeros(std::int64_t count) {
  static constexpr std::byte kZeros[4096] = {};
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t part = std::min<std::int64_t>(count - done, sizeof(kZeros));
    AIT_RETURN_IF_ERROR(Append(std::span(kZeros).first(static_cast<std::size_t>(part))));
    done += part;
  }
  return OkStatus();
}

Status IndexedFile::Commit() {
  AIT_RETURN_IF_ERROR(broken_);
  AIT_RETURN_IF_ERROR(Flush());
  broken_ = FailedPreconditionError(file_.path(), " is committed");
  index_.shard_bytes = file_.size_bytes();
  const std::string index_path = IndexPath(file_.path());
  if (unlink(index_path.c_str()) != 0 && errno != ENOENT) {
    return ErrnoError(errno, "removing the old index ", index_path);
  }
  AIT_RETURN_IF_ERROR(file_.Commit());
  if (!with_index_) return OkStatus();
  return WriteFileDurably(index_path, SerializeIndex(index_));
}

}  // namespace ait::inline v0::internal

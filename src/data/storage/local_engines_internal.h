// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_STORAGE_LOCAL_ENGINES_INTERNAL_H_
#define AIT_DATA_STORAGE_LOCAL_ENGINES_INTERNAL_H_

// The ways to read a local file, and what they need to know.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "ait/base/status.h"
#include "ait/data/storage/local_storage.h"
#include "ait/data/storage/storage.h"
#include "data/storage/local_file_internal.h"
#include "data/storage/read_pool_internal.h"
#include "data/storage/read_stream_internal.h"

namespace ait::inline v0::internal {

struct FileSystem {
  std::string name;
  bool is_network = false;  // behind a network, or a server in user space
  bool is_memory = false;   // tmpfs: nothing is ever cold
};
/// Of an open file; "unknown" if the system does not say.
FileSystem FileSystemOf(int fd);

/// The part of [begin, end) that is in the page cache, by a sample; -1 if the system does not say.
/// Starts no input.
double CachedPart(int fd, std::int64_t begin, std::int64_t end);

/// Bytes that the page cache might still take: what is available on the host and in the cgroup.
std::int64_t MemoryForCache();

/// Alignment of offsets, lengths and addresses for O_DIRECT, a power of two of at least 512.
/// 0: not possible on this file.
std::int64_t DirectAlignment(int fd);

/// Reads the first block of the file by io_uring and O_DIRECT. **Errors.** Whatever stands against
/// it; the caller takes another way.
Status ProbeDirect(const LocalFile& file, std::int64_t alignment);

/// Reads of cached data by one call for many, from a mapping, whichever file shrinks.
/// **Thread-safety.** All calls may come from any thread.
class MappedFile {
 public:
  /// **Errors.** Those of mmap and process_vm_readv: take pread then.
  static StatusOr<std::unique_ptr<MappedFile>> Open(const LocalFile& file);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  /// Does the reads, which lie within the size; those that the mapping cannot serve by pread.
  void Read(const LocalFile& file, std::span<ObjectRead> reads) const;

 private:
  MappedFile(const std::byte* data, std::size_t bytes) : data_(data), bytes_(bytes) {}
  /// How many of the reads, from the first on, were done.
  std::size_t Copy(std::span<ObjectRead> reads) const;

  const std::byte* data_;
  std::size_t bytes_;
};

/// Seconds of a small read of cached data, by pread and by the mapping; 0: not measured.
struct SmallReadTimes {
  double pread_seconds = 0;
  double mapped_seconds = 0;
};
SmallReadTimes MeasureSmallReads(const LocalFile& file, const MappedFile& mapped);

/// Blocks read by the threads of a pool, `depth` of them ahead. Holds the file and the pool.
StatusOr<std::unique_ptr<ObjectStream>> StreamByPool(std::shared_ptr<const LocalFile> file,
                                                     std::shared_ptr<ReadPool> pool,
                                                     StreamRange range,
                                                     const StreamOptions& options);

/// Blocks read past the page cache, `depth` of them ahead. `alignment` is that of O_DIRECT.
/// **Errors.** Whatever stands against it; the caller takes another way.
StatusOr<std::unique_ptr<ObjectStream>> StreamByRing(std::shared_ptr<const LocalFile> file,
                                                     std::int64_t alignment, StreamRange range,
                                                     const StreamOptions& options);

/// Does the reads that the page cache can serve at once, and the others together by the pool.
/// `pool` may be null.
void ReadTogether(const LocalFile& file, ReadPool* pool, std::span<ObjectRead> reads);

}  // namespace ait::inline v0::internal

#endif  // AIT_DATA_STORAGE_LOCAL_ENGINES_INTERNAL_H_

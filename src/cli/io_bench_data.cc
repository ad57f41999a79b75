// SPDX-License-Identifier: Apache-2.0
#include "cli/io_bench_data.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <memory>
#include <random>
#include <span>

#include "base/file_descriptor.h"
#include "data/storage/local_engines_internal.h"

namespace ait::cli {
namespace {

double CpuSeconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Counts from its making.
class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }
  void Stop(IoBenchRow& row) const {
    row.seconds = seconds();
    row.cpu_seconds = CpuSeconds() - cpu_;
  }

 private:
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
  const double cpu_ = CpuSeconds();
};

IoBenchRow RowOf(const char* pattern, std::string engine, const IoBenchShape& shape) {
  return {.pattern = pattern,
          .engine = std::move(engine),
          .block_bytes = shape.block_bytes,
          .depth = shape.depth};
}

}  // namespace

StatusOr<IoBenchRow> MeasureSequential(const Storage& storage, const std::string& url,
                                       const IoBenchShape& shape) {
  IoBenchRow row = RowOf("sequential", storage.name(), shape);
  const Stopwatch watch;
  AIT_ASSIGN_OR_RETURN(const auto object, storage.Open(url));
  AIT_ASSIGN_OR_RETURN(const auto stream, object->Stream({.length_bytes = shape.most_bytes,
                                                          .block_bytes = shape.block_bytes,
                                                          .depth = shape.depth}));
  while (watch.seconds() < shape.most_seconds) {
    AIT_ASSIGN_OR_RETURN(const ByteView block, stream->Next());
    if (block.is_empty()) break;
    row.bytes += static_cast<std::int64_t>(block.size_bytes());
    ++row.reads;
  }
  watch.Stop(row);
  return row;
}

StatusOr<IoBenchRow> MeasureRandom(const Storage& storage, const std::string& url,
                                   const IoBenchShape& shape) {
  IoBenchRow row = RowOf("random", storage.name(), shape);
  AIT_ASSIGN_OR_RETURN(const auto object, storage.Open(url));
  const std::int64_t size = std::min(object->info().size_bytes, shape.most_bytes);
  if (size < shape.block_bytes) {
    return InvalidArgumentError(url, " has ", size, " bytes, less than a read of ",
                                shape.block_bytes);
  }
  const auto together = static_cast<std::size_t>(std::max(shape.depth, 1));
  const auto block = static_cast<std::size_t>(shape.block_bytes);
  std::vector<std::byte> memory(together * block);
  std::vector<ObjectRead> reads(together);
  for (std::size_t i = 0; i < together; ++i) {
    reads[i].out = std::span(memory).subspan(i * block, block);
  }
  std::mt19937_64 random(1);
  const Stopwatch watch;
  while (row.reads < shape.most_reads && watch.seconds() < shape.most_seconds) {
    for (ObjectRead& read : reads) {
      read.offset_bytes = static_cast<std::int64_t>(
          random() % static_cast<std::uint64_t>(size - shape.block_bytes + 1));
    }
    if (together == 1) {
      AIT_RETURN_IF_ERROR(object->ReadAt(reads[0].offset_bytes, reads[0].out));
    } else {
      object->ReadMany(reads);
    }
    for (const ObjectRead& read : reads) AIT_RETURN_IF_ERROR(read.status);
    row.reads += static_cast<std::int64_t>(together);
    row.bytes += static_cast<std::int64_t>(memory.size());
  }
  watch.Stop(row);
  return row;
}

StatusOr<IoBenchRow> MeasureFiles(const Storage& storage, const std::vector<std::string>& urls,
                                  const IoBenchShape& shape) {
  IoBenchRow row = RowOf("files", storage.name(), shape);
  row.block_bytes = 0;
  std::vector<std::byte> memory;
  const Stopwatch watch;
  for (const std::string& url : urls) {
    if (row.reads >= shape.most_reads || watch.seconds() >= shape.most_seconds) break;
    AIT_ASSIGN_OR_RETURN(const auto object, storage.Open(url));
    const std::int64_t size = std::min(object->info().size_bytes, shape.most_bytes);
    memory.resize(std::max(memory.size(), static_cast<std::size_t>(size)));
    AIT_RETURN_IF_ERROR(object->ReadAt(0, std::span(memory).first(static_cast<std::size_t>(size))));
    row.bytes += size;
    ++row.reads;
  }
  watch.Stop(row);
  if (row.reads > 0) row.block_bytes = row.bytes / row.reads;
  return row;
}

StatusOr<IoBenchRow> MeasurePlain(const std::string& path, const IoBenchShape& shape) {
  IoBenchRow row = RowOf("sequential", "plain", shape);
  row.depth = 0;
  const auto memory =
      std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(shape.block_bytes));
  const Stopwatch watch;
  const internal::FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.is_open()) return ErrnoError(errno, "cannot open ", path);
  while (row.bytes < shape.most_bytes && watch.seconds() < shape.most_seconds) {
    const auto want = std::min(shape.block_bytes, shape.most_bytes - row.bytes);
    const ssize_t count =
        ::pread(fd.get(), memory.get(), static_cast<std::size_t>(want), row.bytes);
    if (count < 0) return ErrnoError(errno, "cannot read ", path);
    if (count == 0) break;
    row.bytes += count;
    ++row.reads;
  }
  watch.Stop(row);
  return row;
}

StatusOr<double> DropFromCache(const std::string& path) {
  const internal::FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.is_open()) return ErrnoError(errno, "cannot open ", path);
  // Only clean pages are dropped.
  if (::fdatasync(fd.get()) != 0 && errno != EINVAL && errno != EROFS) {
    return ErrnoError(errno, "cannot write back ", path);
  }
  if (const int error = ::posix_fadvise(fd.get(), 0, 0, POSIX_FADV_DONTNEED); error != 0) {
    return ErrnoError(error, "cannot drop ", path, " from the page cache");
  }
  return internal::CachedPart(fd.get(), 0, ::lseek(fd.get(), 0, SEEK_END));
}

Status DropAllCaches() {
  ::sync();
  const internal::FileDescriptor fd(::open("/proc/sys/vm/drop_caches", O_WRONLY | O_CLOEXEC));
  if (!fd.is_open() || ::write(fd.get(), "3", 1) != 1) {
    return ErrnoError(errno, "cannot drop the caches of this host by /proc/sys/vm/drop_caches");
  }
  return OkStatus();
}

void SetRatios(std::vector<IoBenchRow>& rows) {
  const auto rate = [](const IoBenchRow& row) {
    return row.seconds > 0 ? static_cast<double>(row.bytes) / row.seconds : 0;
  };
  for (IoBenchRow& row : rows) {
    for (const IoBenchRow& plain : rows) {
      if (plain.engine == "plain" && row.engine != "plain" && plain.pattern == row.pattern &&
          plain.cache == row.cache && plain.block_bytes == row.block_bytes && rate(plain) > 0) {
        row.ratio = rate(row) / rate(plain);
      }
    }
  }
}

}  // namespace ait::cli

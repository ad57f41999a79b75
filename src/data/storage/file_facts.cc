// SPDX-License-Identifier: Apache-2.0
// What the system knows of a file: where it lies and how much of it is in memory.
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <vector>

#include "ait/memory/buffer.h"
#include "ait/memory/heap.h"
#include "ait/topology/budget.h"
#include "base/io_ring.h"
#include "data/storage/local_engines_internal.h"

namespace ait::inline v0::internal {
namespace {

struct KnownFileSystem {
  std::uint32_t magic;
  const char* name;
  bool is_network = false;
  bool is_memory = false;
};

// Magic numbers of linux/magic.h and of the file systems' own sources.
constexpr KnownFileSystem kKnown[] = {
    {0xef53, "ext4"},
    {0x58465342, "xfs"},
    {0x9123683e, "btrfs"},
    {0xf2f52010, "f2fs"},
    {0x2fc12fc1, "zfs"},
    {0x794c7630, "overlay"},
    {0x73717368, "squashfs"},
    {0x01021994, "tmpfs", false, true},
    {0x858458f6, "ramfs", false, true},
    {0x958458f6, "hugetlbfs", false, true},
    {0x6969, "nfs", true},
    {0xff534d42, "cifs", true},
    {0xfe534d42, "smb2", true},
    {0x00c36400, "ceph", true},
    {0x0bd00bd0, "lustre", true},
    {0x47504653, "gpfs", true},
    {0x19830326, "beegfs", true},
    {0x01021997, "9p", true},
    {0x65735546, "fuse", true},
    {0x5346414f, "afs", true},
};

// The kernel's cachestat (6.5), which liburing's and libc's headers do not have yet.
constexpr long kCachestatCall = 451;
struct CacheRange {
  std::uint64_t offset;
  std::uint64_t length;
};
struct CacheCounts {
  std::uint64_t cached, dirty, writeback, evicted, recently_evicted;
};

constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kSampleBytes = 64 * kPage;
constexpr int kSamples = 16;

// Pages of a range that are in memory; -1 if neither call says.
std::int64_t CachedPages(int fd, std::int64_t offset, std::int64_t length) {
  const CacheRange range = {static_cast<std::uint64_t>(offset), static_cast<std::uint64_t>(length)};
  CacheCounts counts{};
  if (::syscall(kCachestatCall, fd, &range, &counts, 0) == 0) {
    return static_cast<std::int64_t>(counts.cached);
  }
  // Where the caller may not write the file, mincore calls every page resident.
  void* const mapping =
      ::mmap(nullptr, static_cast<std::size_t>(length), PROT_READ, MAP_SHARED, fd, offset);
  if (mapping == MAP_FAILED) return -1;
  unsigned char resident[kSampleBytes / kPage] = {};
  const int result = ::mincore(mapping, static_cast<std::size_t>(length), resident);
  ::munmap(mapping, static_cast<std::size_t>(length));
  if (result != 0) return -1;
  return std::count_if(std::begin(resident), std::end(resident),
                       [](unsigned char page) { return (page & 1) != 0; });
}

}  // namespace

FileSystem FileSystemOf(int fd) {
  struct statfs info{};
  if (::fstatfs(fd, &info) != 0) return {.name = "unknown"};
  const auto magic = static_cast<std::uint32_t>(info.f_type);
  for (const KnownFileSystem& known : kKnown) {
    if (known.magic == magic) {
      return {.name = known.name, .is_network = known.is_network, .is_memory = known.is_memory};
    }
  }
  return {.name = StrCat("file system ", magic)};
}

double CachedPart(int fd, std::int64_t begin, std::int64_t end) {
  if (end <= begin) return 1;
  begin = begin / kPage * kPage;
  const std::int64_t length = end - begin;
  std::int64_t looked = 0;
  std::int64_t cached = 0;
  std::int64_t free_from = begin;
  for (int i = 0; i < kSamples; ++i) {
    // Spread so that the first lies at the beginning and the last at the end.
    const std::int64_t last = std::max<std::int64_t>(length - kSampleBytes, 0);
    const std::int64_t offset =
        std::max(begin + last * i / (kSamples - 1) / kPage * kPage, free_from);
    const std::int64_t bytes = std::min(kSampleBytes, end - offset);
    if (bytes <= 0) break;
    const std::int64_t pages = CachedPages(fd, offset, bytes);
    if (pages < 0) return -1;
    looked += (bytes + kPage - 1) / kPage;
    cached += pages;
    free_from = offset + kSampleBytes;
  }
  return static_cast<double>(cached) / static_cast<double>(looked);
}

std::int64_t MemoryForCache() {
  const StatusOr<Budget> budget = ReadBudget();
  if (!budget.ok() || !budget->memory_available) return 0;
  return budget->memory_available->value.value();
}

std::int64_t DirectAlignment(int fd) {
#ifdef STATX_DIOALIGN
  struct statx info{};
  if (::statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &info) == 0 &&
      (info.stx_mask & STATX_DIOALIGN) != 0) {
    const std::int64_t needed =
        std::max<std::int64_t>(info.stx_dio_mem_align, info.stx_dio_offset_align);
    if (info.stx_dio_offset_align == 0) return 0;
    // Both are powers of two; pages of a block are not shared with other memory.
    return std::max(needed, kPage);
  }
#endif
  return kPage;  // enough wherever it is possible, and older kernels do not say
}

Status ProbeDirect(const LocalFile& file, std::int64_t alignment) {
  AIT_ASSIGN_OR_RETURN(const FileDescriptor fd, file.OpenDirect());
  AIT_ASSIGN_OR_RETURN(const auto ring, IoRing::Open(1, IoRing::Threads::kOne));
  const auto bytes = static_cast<std::size_t>(alignment);
  AIT_ASSIGN_OR_RETURN(HostBuffer block, HostBuffer::Create(HeapResource::Create(), bytes, bytes));
  AIT_RETURN_IF_ERROR(ring->Start(
      {.fd = fd.get(), .data = block.data(), .bytes = static_cast<std::uint32_t>(bytes)}));
  AIT_ASSIGN_OR_RETURN(const IoRing::Done done, ring->Wait());
  if (done.result < 0) {
    return ErrnoError(static_cast<int>(-done.result), "io_uring: reading ", file.path());
  }
  const std::int64_t expected = std::min(alignment, file.info().size_bytes);
  if (done.result < expected) {
    return UnavailableError("io_uring read ", done.result, " of ", expected, " bytes of ",
                            file.path());
  }
  // It must not only answer, but answer right.
  std::vector<std::byte> same(static_cast<std::size_t>(expected));
  AIT_RETURN_IF_ERROR(file.ReadUnchecked(0, same));
  if (std::memcmp(same.data(), block.data(), same.size()) != 0) {
    return UnavailableError("io_uring and pread read different bytes of ", file.path());
  }
  return OkStatus();
}

}  // namespace ait::inline v0::internal

// SPDX-License-Identifier: Apache-2.0
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <vector>

#include "data/storage/local_engines_internal.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::size_t kMostAtOnce = 256;  // of the 1,024 that the kernel takes: the stack is small

}  // namespace

StatusOr<std::unique_ptr<MappedFile>> MappedFile::Open(const LocalFile& file) {
  const auto bytes = static_cast<std::size_t>(file.info().size_bytes);
  if (bytes == 0) return FailedPreconditionError(file.path(), " is empty");
  void* const data = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, file.fd(), 0);
  if (data == MAP_FAILED) return ErrnoError(errno, "cannot map ", file.path());
  ::madvise(data, bytes, MADV_RANDOM);
  std::unique_ptr<MappedFile> mapped(new MappedFile(static_cast<const std::byte*>(data), bytes));
  // The call may be forbidden, as it is for containers on older hosts.
  std::byte first;
  const iovec to = {&first, 1};
  const iovec from = {data, 1};
  if (::process_vm_readv(::getpid(), &to, 1, &from, 1, 0) != 1) {
    return ErrnoError(errno, "process_vm_readv of the mapping of ", file.path());
  }
  return mapped;
}

MappedFile::~MappedFile() { ::munmap(const_cast<std::byte*>(data_), bytes_); }

void MappedFile::Read(const LocalFile& file, std::span<ObjectRead> reads) const {
  const std::span<ObjectRead> all = reads;
  while (!reads.empty()) {
    const std::size_t tried = std::min(reads.size(), kMostAtOnce);
    const std::size_t done = Copy(reads.first(tried));
    reads = reads.subspan(done);
    if (done == tried) continue;
    // The file may have become shorter: pread says so in words.
    ObjectRead& failed = reads.front();
    failed.status = file.ReadUnchecked(failed.offset_bytes, failed.out);
    reads = reads.subspan(1);
  }
  // Where the file was cut inside a page the mapping has zeros.
  const Status unchanged = file.CheckOpen();
  if (unchanged.ok()) return;
  for (ObjectRead& read : all) {
    if (read.status.ok()) read.status = unchanged;
  }
}

std::size_t MappedFile::Copy(std::span<ObjectRead> reads) const {
  std::array<iovec, kMostAtOnce> to;
  std::array<iovec, kMostAtOnce> from;
  ssize_t expected = 0;
  for (std::size_t i = 0; i < reads.size(); ++i) {
    ObjectRead& read = reads[i];
    read.status = OkStatus();
    to[i] = {read.out.data(), read.out.size()};
    from[i] = {const_cast<std::byte*>(data_ + read.offset_bytes), read.out.size()};
    expected += static_cast<ssize_t>(read.out.size());
  }
  const ssize_t moved =
      ::process_vm_readv(::getpid(), to.data(), reads.size(), from.data(), reads.size(), 0);
  if (moved == expected) return reads.size();
  // What was copied is whole up to the read that failed.
  std::size_t done = 0;
  for (ssize_t left = std::max<ssize_t>(moved, 0); done < reads.size(); ++done) {
    left -= static_cast<ssize_t>(reads[done].out.size());
    if (left < 0) break;
  }
  return std::min(done, reads.size() - 1);
}

SmallReadTimes MeasureSmallReads(const LocalFile& file, const MappedFile& mapped) {
  using Clock = std::chrono::steady_clock;
  constexpr std::size_t kBytes = 2048;
  constexpr std::size_t kReads = 64;
  constexpr int kRounds = 5;
  const std::int64_t size = file.info().size_bytes;
  if (size < static_cast<std::int64_t>(kBytes * kReads)) return {};
  // One place of the file, so that no more of it is read than must be.
  std::vector<std::byte> out(kBytes * kReads);
  std::vector<ObjectRead> reads(kReads);
  for (std::size_t i = 0; i < kReads; ++i) {
    reads[i].offset_bytes = static_cast<std::int64_t>(i * 37 % kReads * kBytes);
    reads[i].out = std::span(out).subspan(i * kBytes, kBytes);
  }
  SmallReadTimes best;
  for (int round = 0; round < kRounds; ++round) {
    const Clock::time_point start = Clock::now();
    for (ObjectRead& read : reads) read.status = file.ReadUnchecked(read.offset_bytes, read.out);
    const Clock::time_point middle = Clock::now();
    mapped.Read(file, reads);
    const Clock::time_point end = Clock::now();
    const double by_pread = std::chrono::duration<double>(middle - start).count() / kReads;
    const double by_mapping = std::chrono::duration<double>(end - middle).count() / kReads;
    if (round == 0) {  // fills the page cache and the page table
      best = {by_pread, by_mapping};
    } else {
      best = {std::min(best.pread_seconds, by_pread), std::min(best.mapped_seconds, by_mapping)};
    }
  }
  return best;
}

}  // namespace ait::inline v0::internal

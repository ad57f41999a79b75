// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "ait/data/crc32c.h"
#include "data/cache/entry_internal.h"
#include "data/cache/file_io_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

constexpr std::int64_t kChunk = 256 << 10;  // stays in the cache of a core

std::int64_t SlotStart(int part) { return kSlotsOffset + kSlotBytes * part; }

}  // namespace

std::int64_t NowNanoseconds() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

CacheEntry::CacheEntry(std::string name, FileDescriptor fd, const PartMapHeader& header)
    : name_(std::move(name)),
      fd_(std::move(fd)),
      header_(header),
      parts_(std::make_unique<Part[]>(static_cast<std::size_t>(header.parts()))) {
  last_read = NowNanoseconds();
}

bool CacheEntry::AreReady(int first, int last) const {
  for (int part = first; part <= last; ++part) {
    if (!is_ready(part)) return false;
  }
  return true;
}

Status CacheEntry::Read(std::int64_t offset, std::span<std::byte> out) const {
  return ReadFully(fd_.get(), header_.data_offset() + offset, out);
}

StatusOr<CacheEntry::Found> CacheEntry::Verify(int part) {
  const auto slot = ReadSlot(fd_.get(), header_, part);
  if (slot.status().code() == StatusCode::kDataLoss) return Found::kDamaged;  // a file cut short
  if (!slot.ok()) return slot.status();
  if (!slot->has_value()) return Found::kAbsent;
  std::int64_t left = header_.PartLength(part), offset = header_.part_bytes * part;
  std::vector<std::byte> chunk(static_cast<std::size_t>(std::min(left, kChunk)));
  std::uint32_t crc = 0;
  while (left > 0) {
    const auto piece = std::span(chunk).first(static_cast<std::size_t>(std::min(left, kChunk)));
    const Status read = Read(offset, piece);
    if (read.code() == StatusCode::kDataLoss) return Found::kDamaged;
    AIT_RETURN_IF_ERROR(read);
    crc = Crc32c(piece, crc);
    offset += static_cast<std::int64_t>(piece.size());
    left -= static_cast<std::int64_t>(piece.size());
  }
  if (crc != **slot) return Found::kDamaged;
  parts_[static_cast<std::size_t>(part)].ready.store(true, std::memory_order_release);
  return Found::kReady;
}

Status CacheEntry::Store(int part, std::span<const std::byte> bytes, bool sync) {
  AIT_ASSIGN_OR_RETURN(const bool is_short, IsCutShort());
  if (is_short) return DataLossError("entry ", name_, " was cut short");
  const std::int64_t start = header_.data_offset() + header_.part_bytes * part;
  Status stored = WriteFully(fd_.get(), start, bytes);
  // After a failed sync the page cache no longer tells what is on the disk: give the part up.
  if (stored.ok() && sync && ::fdatasync(fd_.get()) != 0) {
    stored = ErrnoError(errno, "cannot sync part ", part);
  }
  if (stored.ok()) stored = WriteSlot(fd_.get(), header_, part, Crc32c(bytes));
  // The space is not given back: another process may take the part for one that it has compared.
  if (!stored.ok()) return Annotate(stored, name_);
  parts_[static_cast<std::size_t>(part)].ready.store(true, std::memory_order_release);
  return OkStatus();
}

StatusOr<bool> CacheEntry::IsCutShort() const {
  struct stat info{};
  if (::fstat(fd_.get(), &info) != 0) return ErrnoError(errno, "cannot ask the size of ", name_);
  return info.st_size < header_.data_offset() + header_.length_bytes;
}

Status CacheEntry::Drop(int part) {
  Distrust(part);
  return ClearSlot(fd_.get(), part);
}

std::vector<bool> CacheEntry::ReadyParts() const {
  std::vector<bool> ready(static_cast<std::size_t>(header_.parts()));
  for (int part = 0; part < header_.parts(); ++part) {
    ready[static_cast<std::size_t>(part)] = is_ready(part);
  }
  return ready;
}

void CacheEntry::Remember(const std::vector<bool>& ready) {
  for (int part = 0; part < std::min(header_.parts(), static_cast<int>(ready.size())); ++part) {
    if (!ready[static_cast<std::size_t>(part)]) continue;
    const auto slot = ReadSlot(fd_.get(), header_, part);
    if (!slot.ok() || !slot->has_value()) continue;  // another process found it damaged
    Part& mine = parts_[static_cast<std::size_t>(part)];
    mine.promote_at = 1;
    mine.ready.store(true, std::memory_order_release);
  }
}

bool CacheEntry::IsTimeToPromote(int part, std::int64_t now, std::int64_t interval) {
  std::atomic<std::int64_t>& at = parts_[static_cast<std::size_t>(part)].promote_at;
  std::int64_t due = at.load(std::memory_order_relaxed);
  if (due == 0) {
    at.compare_exchange_strong(due, 1);  // the first use
    return false;
  }
  return now >= due && at.compare_exchange_strong(due, now + interval);
}

bool PartLock::LockHere(Deadline deadline, bool* waited) {
  std::unique_lock lock(entry_->mutex_);
  bool& busy = entry_->parts_[static_cast<std::size_t>(part_)].busy;
  while (busy) {
    if (deadline.expired()) return false;
    *waited = true;
    if (deadline.is_infinite()) {
      entry_->released_.wait(lock);
    } else {
      entry_->released_.wait_until(lock, deadline.time());
    }
  }
  busy = here_ = true;
  return true;
}

StatusOr<bool> PartLock::LockEverywhere(Deadline deadline, bool* waited) {
  // There is no wait with a time-out for these locks.
  std::chrono::microseconds pause(200);
  for (;;) {
    AIT_ASSIGN_OR_RETURN(everywhere_, TryLockRange(entry_->fd(), SlotStart(part_), kSlotBytes,
                                                   LockKind::kExclusive));
    if (everywhere_) return true;
    if (deadline.expired()) return false;
    *waited = true;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(5'000));
  }
}

void PartLock::Release() {
  if (everywhere_) UnlockRange(entry_->fd(), SlotStart(part_), kSlotBytes);
  everywhere_ = false;
  if (!here_) return;
  here_ = false;
  {
    const std::lock_guard lock(entry_->mutex_);
    entry_->parts_[static_cast<std::size_t>(part_)].busy = false;
  }
  entry_->released_.notify_all();
}

}  // namespace internal
}  // namespace ait::inline v0

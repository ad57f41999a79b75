// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_CACHE_ENTRY_INTERNAL_H_
#define AIT_DATA_CACHE_ENTRY_INTERNAL_H_

// A file of the cache that this process holds open: parts of one object, and who may write them.
//
// Byte 0 of the file is its lease: whoever holds it open has a shared lock there, and only who gets
// the exclusive one may remove it. The bytes of a slot are the lock of its part: whoever downloads
// it has that exclusively, so another process waits, and goes on when the first is killed.
// **Thread-safety.** All calls may come from any thread.

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ait/base/clock.h"
#include "base/file_descriptor.h"
#include "data/cache/part_map_internal.h"

namespace ait::inline v0 {
namespace internal {

/// Steady time in nanoseconds.
std::int64_t NowNanoseconds();

class CacheEntry {
 public:
  CacheEntry(std::string name, FileDescriptor fd, const PartMapHeader& header);

  const std::string& name() const { return name_; }
  const PartMapHeader& header() const { return header_; }
  int fd() const { return fd_.get(); }

  /// Whether the part is there and this process has compared its checksum.
  bool is_ready(int part) const {
    return parts_[static_cast<std::size_t>(part)].ready.load(std::memory_order_acquire);
  }
  /// The file was cut short: it is never made longer again, for others may hold it open and take
  /// the hole for bytes. What was not cut is still good; what is missing goes into another file.
  bool is_retired() const { return retired_.load(std::memory_order_acquire); }
  void Retire() { retired_.store(true, std::memory_order_release); }
  StatusOr<bool> IsCutShort() const;
  bool AreReady(int first, int last) const;

  /// Reads from the place `offset` of the entry's data.
  Status Read(std::int64_t offset, std::span<std::byte> out) const;

  /// What the sidecar says of a part, compared with the part. kReady makes it ready.
  enum class Found { kReady, kAbsent, kDamaged };
  StatusOr<Found> Verify(int part);
  /// Writes a part, makes it durable if `sync`, then enters it. Its lock is held.
  /// **Errors.** DataLoss: the file was cut short; else by errno.
  Status Store(int part, std::span<const std::byte> bytes, bool sync);
  /// The part is not there any more. Its lock is held.
  Status Drop(int part);
  /// The next read compares the checksum again.
  void Distrust(int part) { parts_[static_cast<std::size_t>(part)].ready = false; }

  /// The parts that are ready, to be remembered while the file is closed.
  std::vector<bool> ReadyParts() const;
  /// Makes ready again what was, and is still entered in this file, which is the same.
  void Remember(const std::vector<bool>& ready);

  /// True once in `interval` for each part from its second use on, for who wants to copy it to a
  /// faster tier.
  bool IsTimeToPromote(int part, std::int64_t now, std::int64_t interval);

  std::atomic<std::int64_t> last_read{0};   // NowNanoseconds
  std::atomic<std::int64_t> last_noted{0};  // when the use was written into the file

 private:
  friend class PartLock;
  struct Part {
    std::atomic<bool> ready{false};
    bool busy = false;  // under mutex_
    std::atomic<std::int64_t> promote_at{0};
  };

  const std::string name_;
  const FileDescriptor fd_;
  const PartMapHeader header_;
  std::unique_ptr<Part[]> parts_;
  std::atomic<bool> retired_{false};
  std::mutex mutex_;
  std::condition_variable released_;
};

/// The right to work on a part, first in this process, then on this host.
class PartLock {
 public:
  PartLock(std::shared_ptr<CacheEntry> entry, int part) : entry_(std::move(entry)), part_(part) {}
  PartLock(const PartLock&) = delete;
  PartLock& operator=(const PartLock&) = delete;
  ~PartLock() { Release(); }

  /// False when the deadline has passed; `waited` is set if it was not free at once.
  bool LockHere(Deadline deadline, bool* waited);
  /// After LockHere: excludes other processes. **Errors.** Those of TryLockRange.
  StatusOr<bool> LockEverywhere(Deadline deadline, bool* waited);
  void Release();

 private:
  const std::shared_ptr<CacheEntry> entry_;
  const int part_;
  bool here_ = false;
  bool everywhere_ = false;
};

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_CACHE_ENTRY_INTERNAL_H_

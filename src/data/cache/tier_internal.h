// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_CACHE_TIER_INTERNAL_H_
#define AIT_DATA_CACHE_TIER_INTERNAL_H_

// A shelf with a budget: opens and makes entries, keeps room for parts, gives up what was used
// least recently.
//
// What is in use is counted in the file `control`, under a lock of all processes of the shelf:
//
//   0  8  "AITCTRL1"
//   8  8  bytes in use
//   16 8  number of the last use
//   24 4  CRC-32C of bytes 0 to 23
//   28 4  zero
//
// The count is made anew from the files whenever room runs short, so a process that is killed
// between the two leaves no lasting error. Uses are numbered, not timed: the order of eviction does
// not depend on a clock. **Thread-safety.** All calls may come from any thread.

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "ait/data/cache/tiered_cache.h"
#include "ait/memory/fork_safe_mutex.h"
#include "data/cache/entry_internal.h"
#include "data/cache/shelf_internal.h"

namespace ait::inline v0 {
namespace internal {

struct TierOptions {
  std::string label;  // "memory" or "disk"
  std::int64_t budget_bytes = 0;
  std::int64_t lease = 0;  // nanoseconds, as all that follow
  std::int64_t use_interval = 0;
  std::int64_t retry_after = 0;
  int max_open_entries = 256;
  LogSink* log = nullptr;
};

struct TierCounters {
  std::atomic<std::int64_t> hits{0}, hit_bytes{0}, stored_parts{0}, stored_bytes{0},
      verified_parts{0}, verification_failures{0}, evictions{0}, evicted_bytes{0}, refusals{0},
      faults{0};
};

class CacheTier {
 public:
  static constexpr std::uint64_t kKeepNone = ~std::uint64_t{0};

  /// **Errors.** ResourceExhausted: the free space and what is cached are less than the budget.
  static StatusOr<std::unique_ptr<CacheTier>> Create(std::unique_ptr<CacheShelf> shelf,
                                                     TierOptions options);

  const std::string& label() const { return options_.label; }
  const CacheShelf& shelf() const { return *shelf_; }
  std::int64_t budget_bytes() const { return options_.budget_bytes; }

  /// The entry of this header, null if it is not there. A damaged file is removed.
  StatusOr<std::shared_ptr<CacheEntry>> Find(const std::string& name, const PartMapHeader& header);
  /// Makes it if it is not there. Null: no room, or the shelf is busy.
  StatusOr<std::shared_ptr<CacheEntry>> FindOrMake(const std::string& name,
                                                   const PartMapHeader& header,
                                                   std::uint64_t keep_after = kKeepNone);
  /// Takes room for a part and allocates it. False: all that is there is in use, or was used after
  /// use number `keep_after`.
  /// **Errors.** Of the file system, which is full or broken.
  StatusOr<bool> TakeRoom(const CacheEntry& entry, int part, std::uint64_t keep_after = kKeepNone);
  /// The number of the last use that was noted, or kKeepNone where it cannot be read.
  std::uint64_t LastUse() const;

  /// Takes an entry that was cut short off the shelf, for a new one to be made.
  void Discard(CacheEntry& entry);

  /// Notes that an entry was read, at `now`. True if this use was written down; `always`: also if
  /// the last one was just now, or the lock must be waited for.
  bool NoteUse(CacheEntry& entry, std::int64_t now, bool always = false);

  /// After a fault the tier is left alone for a while.
  bool is_resting() const { return NowNanoseconds() < resting_until_.load(); }
  void NoteFault(const Status& fault);

  TierCounters counters;
  CacheTierStatistics statistics() const;

 private:
  struct Control {
    std::int64_t used_bytes = 0;
    std::uint64_t last_use = 0;
    bool is_whole = false;  // false: count the files
  };
  class ControlLock;
  struct Candidate;

  CacheTier(std::unique_ptr<CacheShelf> shelf, TierOptions options)
      : shelf_(std::move(shelf)), options_(std::move(options)) {}

  StatusOr<std::shared_ptr<CacheEntry>> OpenEntry(const std::string& name,
                                                  const PartMapHeader& header);
  /// Room for `bytes` more, and for another entry if `for_entry`, by eviction if it must be; the
  /// count is then right. What was used after `keep_after` stays.
  StatusOr<bool> MakeRoom(Control& control, std::int64_t bytes, const std::string& keep,
                          bool for_entry, std::uint64_t keep_after);
  StatusOr<std::vector<Candidate>> CountFiles(Control& control) const;
  /// Removes an entry that nobody uses; the bytes that became free, or nullopt.
  std::optional<std::int64_t> TryRemove(const std::string& name);
  bool ForgetIfIdle(const std::string& name);
  /// Removes a damaged file though others may hold it open; they go on with what they have.
  bool RemoveDamaged(const std::string& name, int fd);
  /// Closes what this process has not read for the time of a lease.
  void CloseIdle();
  /// Closes a quarter of what is not being read. Under table_mutex_.
  void CloseOldest();
  /// Before an entry is closed. Under table_mutex_.
  void RememberCompared(const CacheEntry& entry);

  Control ReadControl() const;
  Status WriteControl(const Control& control) const;

  const std::unique_ptr<CacheShelf> shelf_;
  const TierOptions options_;
  std::mutex control_mutex_;  // the lock of `control` is that of the process
  std::atomic<std::int64_t> no_room_until_{0};
  std::atomic<std::int64_t> resting_until_{0};
  std::atomic<std::int64_t> close_idle_at_{0};
  std::atomic<std::size_t> entries_{0};  // when they were counted last, and made since
  mutable std::mutex table_mutex_;
  std::unordered_map<std::string, std::shared_ptr<CacheEntry>> table_;
  // What of the files that this process has closed was compared: not again when one is opened.
  struct Compared {
    std::uint64_t nonce = 0;
    std::vector<bool> parts;
  };
  std::unordered_map<std::string, Compared> compared_;
  std::size_t compared_parts_ = 0;
  mutable ForkSafeMutex fault_mutex_;
  std::string last_fault_;
};

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_CACHE_TIER_INTERNAL_H_

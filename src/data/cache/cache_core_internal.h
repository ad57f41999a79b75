// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_CACHE_CACHE_CORE_INTERNAL_H_
#define AIT_DATA_CACHE_CACHE_CORE_INTERNAL_H_

// How a read of an object becomes reads of tiers, downloads and copies between them.

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ait/data/cache/tiered_cache.h"
#include "data/cache/tier_internal.h"
#include "data/storage/read_pool_internal.h"

namespace ait::inline v0 {
namespace internal {

/// What the core keeps for an open object.
struct CachedParts {
  std::shared_ptr<const StoredObject> remote;
  bool is_kept = false;  // false: read past the cache
  CacheKey key{};
  std::string hex;

  // For each entry, the open files of it in the tiers; looked up again when they are gone.
  struct Slot {
    std::mutex mutex;
    std::array<std::weak_ptr<CacheEntry>, 2> entries;
  };
  std::unique_ptr<Slot[]> slots;
};

class CacheCore {
 public:
  static StatusOr<std::shared_ptr<CacheCore>> Create(std::shared_ptr<const Storage> storage,
                                                     TieredCacheOptions options);

  const Storage& storage() const { return *storage_; }
  const TieredCacheOptions& options() const { return options_; }
  /// From the fastest down: at most memory and disk.
  const std::vector<std::unique_ptr<CacheTier>>& tiers() const { return tiers_; }
  CacheStatistics statistics() const;

  StatusOr<std::unique_ptr<CachedParts>> OpenParts(const std::string& url) const;

  /// Any range within the object.
  Status Read(const CachedParts& object, std::int64_t offset, std::span<std::byte> out) const;
  /// Brings the part that holds `offset` into the lowest tier, and compares it there. Evicts
  /// nothing that was used after use number `began` of that tier.
  Status Warm(const CachedParts& object, std::int64_t offset, std::uint64_t began) const;
  /// In a child of the process that made it: locks and files are shared with the parent, so the
  /// child reads past the cache.
  bool is_forked() const { return forks_ != ForkSafeMutex::forks(); }
  /// Each as `Read`; parts that are missing are brought at once.
  void ReadMany(const std::shared_ptr<const CachedParts>& object,
                std::span<ObjectRead> reads) const;
  static StatusOr<std::unique_ptr<ObjectStream>> Stream(std::shared_ptr<const CacheCore> core,
                                                        std::shared_ptr<const CachedParts> object,
                                                        const StreamOptions& options);
  /// Has a thread of the cache bring the part that holds `offset`, unless `is_over` by then. False
  /// if there is no thread.
  bool BringSoon(std::shared_ptr<const CachedParts> object, std::int64_t offset,
                 std::shared_ptr<const std::atomic<bool>> is_over) const;
  /// What an object of this size takes of a budget, heads included.
  std::int64_t KeptBytes(std::int64_t size) const;

 private:
  struct Place;   // a part of an object, and the range in it that is wanted
  struct Buffer;  // memory for a part
  enum class Served { kYes, kAbsent, kExpired };

  CacheCore() = default;
  Status AddTier(const std::string& label, StatusOr<std::unique_ptr<CacheShelf>> shelf,
                 std::int64_t budget_bytes);
  Status AddMemory();

  /// Whether a tier has the part that holds `offset`, and it was compared.
  bool IsReady(const CachedParts& object, std::int64_t offset) const;
  /// Brings the part that holds `offset` into the tiers, if they take it.
  Status Bring(const CachedParts& object, std::int64_t offset) const;

  PartMapHeader HeaderOf(const CachedParts& object, std::int64_t entry) const;
  /// The open file of an entry, if it was found before and is open still.
  std::shared_ptr<CacheEntry> OpenNow(const CachedParts& object, std::int64_t entry,
                                      std::size_t tier) const;
  StatusOr<std::shared_ptr<CacheEntry>> Find(const Place& place, std::size_t tier, bool make) const;

  Status ReadEntry(const CachedParts& object, std::int64_t entry, std::int64_t offset,
                   std::span<std::byte> out) const;
  Status ReadPart(const Place& place, std::span<std::byte> out) const;
  StatusOr<Served> ReadFrom(std::size_t tier, const Place& place, std::span<std::byte> out) const;
  StatusOr<Served> ReadReady(std::size_t tier, const Place& place,
                             const std::shared_ptr<CacheEntry>& entry,
                             std::span<std::byte> out) const;
  StatusOr<Served> Download(std::size_t tier, const Place& place, std::span<std::byte> out,
                            int attempts_left = 2) const;
  Status PassThrough(const Place& place, std::span<std::byte> out) const;
  /// Compares a part whose lock in this process is held; what is damaged is dropped.
  StatusOr<bool> MakeReady(CacheTier& tier, CacheEntry& entry, int part, PartLock& lock) const;

  /// **Errors.** Aborted: the object was rewritten since it was opened; those of the storage.
  Status CheckUnchanged(const CachedParts& object) const;
  /// Gives an entry up if its file was cut short; whether it was.
  static bool DiscardIfShort(CacheTier& tier, CacheEntry& entry);

  /// Stores a part in the memory tier unless it is there; whether it did. Never an error. The bytes
  /// are asked for when there is room; none: give up.
  bool KeepInMemory(const Place& place,
                    const std::function<std::span<const std::byte>()>& bytes_of_part) const;
  void Promote(const Place& place, CacheEntry& from) const;
  void NoteHit(std::size_t tier, const Place& place, int last_part, CacheEntry& entry,
               std::size_t bytes) const;
  /// Counts a fault; it is the result of the read where the options say so.
  Status NoteFault(CacheTier& tier, const Status& fault) const;
  void NoteWait(bool waited, std::int64_t since) const;

  const ForkSafeMutex fork_watch_;  // so that forks are counted
  const int forks_ = ForkSafeMutex::forks();
  std::shared_ptr<const Storage> storage_;
  TieredCacheOptions options_;
  std::vector<std::unique_ptr<CacheTier>> tiers_;
  std::vector<std::pair<std::string, Status>> unusable_;  // tiers that could not be opened
  std::string boot_;                                      // differs with every start of the machine

  mutable std::atomic<std::int64_t> downloads_{0}, downloaded_bytes_{0}, promotions_{0},
      promoted_bytes_{0}, pass_through_reads_{0}, pass_through_bytes_{0}, waits_{0}, wait_time_{0},
      expired_waits_{0};
  mutable std::mutex buffers_mutex_;
  mutable std::vector<std::unique_ptr<std::byte[]>> buffers_;  // a few, to use again
  std::unique_ptr<ReadPool> pool_;  // the last member: its threads use the others
};

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_CACHE_CACHE_CORE_INTERNAL_H_

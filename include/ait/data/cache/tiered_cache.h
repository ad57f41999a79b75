// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_CACHE_TIERED_CACHE_H_
#define AIT_DATA_CACHE_TIERED_CACHE_H_

// A storage that keeps what it reads from another: in memory, then on a local disk, then remote.
//
// Every epoch after the first, and every rank of a host after the first, reads from this host. The
// ranks and programs of a host that name the same directories share them: one of them downloads a
// part, the others wait for it, and take over when it is killed.
//
//   AIT_ASSIGN_OR_RETURN(auto remote, OpenStorage("s3://bucket/train/", {}));
//   AIT_ASSIGN_OR_RETURN(auto cache, TieredCache::Create(remote, {.memory_bytes = 16LL << 30,
//                                                                .disk_directory = "/nvme/cache",
//                                                                .disk_bytes = 500LL << 30}));
//   AIT_ASSIGN_OR_RETURN(auto object, cache->Open("s3://bucket/train/shard-00000.tar"));
//
// What it promises: bytes are those of the version that was opened, compared with a checksum when a
// process uses them first; what is damaged is dropped and fetched again; a part whose download was
// ended by a kill or a crash does not count; a tier never holds more than its budget and never
// gives up what is in use; a full, broken or read-only tier does not end the run. docs/data-cache.md
// has the layout on disk and the limits.
//
// It is not for data that lies on a local disk already, nor for writing. To copy a data set as
// plain files before the run see "stage.h".

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "ait/base/log.h"
#include "ait/base/status.h"
#include "ait/data/storage/storage.h"

namespace ait::inline v0 {

namespace internal {
class CacheCore;
}  // namespace internal

/// Who sees the memory tier.
enum class CacheMemory {
  kSharedIfPossible,  // files of a tmpfs; where there is none or it is too small, as kPrivate
  kShared,            // files of a tmpfs, or an error of Create
  kPrivate,           // memory of this process alone, which then has `memory_bytes` for itself
};

/// What becomes of objects whose storage states no version.
enum class UnversionedObjects {
  kPassThrough,  // always read from the storage
  kCacheByAge,   // kept for `unversioned_age` as if they did not change meanwhile
};

/// What a full, broken or read-only tier means.
enum class CacheFault {
  kReadThrough,  // counted, logged, and read from the storage
  kFail,         // the read fails
};

struct TieredCacheOptions {
  /// Budget of the memory tier; 0: there is none.
  std::int64_t memory_bytes = 0;
  /// A directory on a tmpfs. Empty: /dev/shm/ait-cache-UID, which nobody else may write.
  std::string memory_directory = {};
  CacheMemory memory = CacheMemory::kSharedIfPossible;
  /// Budget of the disk tier; 0: there is none. One of the two must be.
  std::int64_t disk_bytes = 0;
  /// A directory on a local disk, made if it does not exist. Nothing but the cache's own files in
  /// it is ever removed.
  std::string disk_directory = {};

  /// What is downloaded and checked as one: 4 KiB … 1 GiB, a multiple of 4 KiB. The last part of an
  /// object is shorter.
  std::int64_t part_bytes = std::int64_t{8} << 20;
  /// What is kept and evicted as one, a file of the cache: a multiple of `part_bytes`, at most
  /// 65,536 of them. Larger objects are several entries. Processes that share a directory share
  /// entries only where both sizes are equal.
  std::int64_t entry_bytes = std::int64_t{256} << 20;

  UnversionedObjects unversioned = UnversionedObjects::kPassThrough;
  std::chrono::milliseconds unversioned_age = std::chrono::hours(1);
  CacheFault fault = CacheFault::kReadThrough;

  /// How long to wait for another thread's or process's download of a part before it is read past
  /// the cache.
  std::chrono::milliseconds wait = std::chrono::minutes(2);
  /// An entry is in use while it is read, and for so long after.
  std::chrono::milliseconds lease = std::chrono::seconds(5);
  /// Uses of an entry that follow each other faster are noted as one; 0: each is.
  std::chrono::milliseconds use_interval = std::chrono::seconds(1);
  /// How long a tier that refused a write is not asked again.
  std::chrono::milliseconds retry_after = std::chrono::seconds(5);
  /// Most entries of a tier that this process holds open, each one descriptor.
  int max_open_entries = 256;
  /// Parts that the cache brings at once for ReadMany and ahead of streams, over all objects.
  int threads = 8;
  /// Gets one line for each first fault of a tier.
  LogSink* log = nullptr;
};

/// What a tier did for this process.
struct CacheTierStatistics {
  std::int64_t hits = 0;  // reads of one entry that it served
  std::int64_t hit_bytes = 0;
  std::int64_t stored_parts = 0;
  std::int64_t stored_bytes = 0;
  std::int64_t verified_parts = 0;
  std::int64_t verification_failures = 0;  // parts and headers found damaged, and dropped
  std::int64_t evictions = 0;              // entries that this process removed
  std::int64_t evicted_bytes = 0;
  std::int64_t refusals = 0;  // parts not kept since all that is there is in use
  std::int64_t faults = 0;    // errors of the file system; the tier was passed by
  std::string last_fault = {};
};

struct CacheStatistics {
  CacheTierStatistics memory;
  CacheTierStatistics disk;
  std::int64_t downloads = 0;  // parts read from the storage to be kept
  std::int64_t downloaded_bytes = 0;
  std::int64_t promotions = 0;  // parts copied from disk to memory
  std::int64_t promoted_bytes = 0;
  std::int64_t pass_through_reads = 0;  // reads of the storage of which nothing was kept
  std::int64_t pass_through_bytes = 0;
  std::int64_t waits = 0;  // for another's download
  std::chrono::nanoseconds wait_time{0};
  std::int64_t expired_waits = 0;
};

struct WarmProgress {
  std::int64_t objects = 0;  // all below the prefix
  std::int64_t bytes = 0;
  std::int64_t objects_done = 0;
  std::int64_t bytes_done = 0;  // bytes that are in the cache and were compared
};

struct WarmOptions {
  int threads = 8;
  /// Called by one thread at a time, after each part. An error ends the work and is returned.
  std::function<Status(const WarmProgress&)> progress = {};
};

/// **Thread-safety.** All calls may come from any thread. After a fork the child reads past the
/// cache, and makes one of its own to have one. **Blocks.** On disks and the network.
class TieredCache final : public Storage {
 public:
  /// A cache of `storage`. **Errors.** InvalidArgument: an option out of its range, a budget
  /// smaller than one entry, a directory on a network file system. ResourceExhausted: less space is
  /// free than a budget still needs. PermissionDenied and others of the file system: the directory
  /// cannot be used, unless `fault` is kReadThrough and another tier can.
  static StatusOr<std::shared_ptr<TieredCache>> Create(std::shared_ptr<const Storage> storage,
                                                       TieredCacheOptions options);
  ~TieredCache() override;

  std::string name() const override;

  /// Asks the storage for the object's version, then reads that version for as long as the object
  /// is open. Objects outlive the cache that opened them. ReadMany brings the parts that are
  /// missing at once. A stream with a depth brings at least two parts ahead; its end waits for no
  /// download, but that of the last of the cache and its objects does, for what has begun.
  /// **Errors.** Those of the storage. Reads: those of the storage; with CacheFault::kFail also
  /// those of the tiers.
  StatusOr<std::shared_ptr<const StoredObject>> Open(const std::string& url) const override;
  StatusOr<ObjectInfo> Stat(const std::string& url) const override;
  Status List(const std::string& prefix,
              const std::function<Status(const ObjectInfo&)>& visit) const override;

  /// Brings every object below `prefix` into the lowest tier, in parallel, and compares what is
  /// there already; what a former call did is not done again. **Errors.** ResourceExhausted: the
  /// tier's budget is smaller than the objects; FailedPrecondition: they have no version and are
  /// not kept, or the cache is that of a parent process; Unavailable: a part could not be kept; those of the storage and of `progress`.
  StatusOr<WarmProgress> Warm(const std::string& prefix, const WarmOptions& options = {}) const;

  /// What happened in this process since Create.
  CacheStatistics statistics() const;

 private:
  explicit TieredCache(std::shared_ptr<internal::CacheCore> core);
  std::shared_ptr<internal::CacheCore> core_;
};

}  // namespace ait::inline v0

#endif  // AIT_DATA_CACHE_TIERED_CACHE_H_

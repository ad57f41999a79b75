// SPDX-License-Identifier: Apache-2.0
// A cache from its options, and the objects it opens.
#include "data/cache/cache_core_internal.h"

#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <new>

#include "data/cache/file_io_internal.h"
#include "data/input_file_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kMaxEntries = std::int64_t{1} << 22;  // of an object; 80 bytes each
constexpr std::int64_t kMaxPartBytes = std::int64_t{1} << 30;

std::int64_t Nanoseconds(std::chrono::milliseconds duration) {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Saturate(duration)).count();
}

Status CheckOptions(const TieredCacheOptions& options) {
  if (options.part_bytes < kPage || options.part_bytes > kMaxPartBytes ||
      options.part_bytes % kPage != 0) {
    return InvalidArgumentError("part_bytes of the cache is ", options.part_bytes,
                                "; give a multiple of 4096 up to 2^30");
  }
  if (options.entry_bytes < options.part_bytes || options.entry_bytes % options.part_bytes != 0 ||
      options.entry_bytes / options.part_bytes > kMaxParts) {
    return InvalidArgumentError("entry_bytes of the cache is ", options.entry_bytes,
                                "; give a multiple of part_bytes, ", options.part_bytes,
                                ", at most ", kMaxParts, " of them");
  }
  if (options.memory_bytes == 0 && options.disk_bytes == 0) {
    return InvalidArgumentError("the cache has no tier: set memory_bytes or disk_bytes");
  }
  const PartMapHeader largest = {.part_bytes = options.part_bytes,
                                 .length_bytes = options.entry_bytes};
  const std::int64_t least = largest.data_offset() + options.entry_bytes;
  for (const auto& [label, budget] : {std::pair{"memory_bytes", options.memory_bytes},
                                      std::pair{"disk_bytes", options.disk_bytes}}) {
    if (budget != 0 && budget < least) {
      return InvalidArgumentError(label, " of the cache is ", budget,
                                  ", less than one entry needs, ", least,
                                  "; raise it, or lower entry_bytes");
    }
  }
  if (options.disk_bytes != 0 && options.disk_directory.empty()) {
    return InvalidArgumentError("the disk tier of the cache has no disk_directory");
  }
  if (options.threads < 1 || options.threads > 1024) {
    return InvalidArgumentError("the cache reads by ", options.threads, " threads; give 1 to 1024");
  }
  if (options.max_open_entries < 1 || options.unversioned_age.count() < 1 ||
      options.wait.count() < 0 || options.lease.count() < 0 || options.use_interval.count() < 0 ||
      options.retry_after.count() < 0) {
    return InvalidArgumentError(
        "an option of the cache is out of its range: max_open_entries and unversioned_age are at "
        "least 1, no time is negative");
  }
  return OkStatus();
}

// Milliseconds since the machine started, asleep or not: it never goes back.
std::int64_t BootMilliseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_BOOTTIME, &now);
  return now.tv_sec * 1000 + now.tv_nsec / 1'000'000;
}

// What a tier that cannot be opened means, rather than a mistake in the options.
bool IsFault(const Status& status) {
  return !status.ok() && status.code() != StatusCode::kInvalidArgument &&
         status.code() != StatusCode::kResourceExhausted;
}

}  // namespace

Status CacheCore::AddTier(const std::string& label, StatusOr<std::unique_ptr<CacheShelf>> shelf,
                          std::int64_t budget_bytes) {
  Status status = shelf.status();
  if (status.ok()) {
    // Where a fault is an error, the next read meets it again at once.
    const auto rest =
        options_.fault == CacheFault::kFail ? std::chrono::milliseconds(0) : options_.retry_after;
    auto tier =
        CacheTier::Create(*std::move(shelf), {.label = label,
                                              .budget_bytes = budget_bytes,
                                              .lease = Nanoseconds(options_.lease),
                                              .use_interval = Nanoseconds(options_.use_interval),
                                              .retry_after = Nanoseconds(rest),
                                              .max_open_entries = options_.max_open_entries,
                                              .log = options_.log});
    if (tier.ok()) tiers_.push_back(*std::move(tier));
    status = tier.status();
  }
  return status;
}

Status CacheCore::AddMemory() {
  if (options_.memory != CacheMemory::kPrivate) {
    const bool is_default = options_.memory_directory.empty();
    const std::string directory =
        is_default ? StrCat("/dev/shm/ait-cache-", ::geteuid()) : options_.memory_directory;
    const Status shared = AddTier(
        "memory", DirectoryShelf(directory, /*in_memory=*/true, is_default), options_.memory_bytes);
    const bool is_mistake = !is_default && shared.code() == StatusCode::kInvalidArgument;
    if (shared.ok() || is_mistake || options_.memory == CacheMemory::kShared) return shared;
    Log(options_.log, Severity::kWarning, "data",
        StrCat("the memory tier of the cache is of this process alone: ", Message(shared)));
  }
  return AddTier("memory", PrivateShelf(), options_.memory_bytes);
}

StatusOr<std::shared_ptr<CacheCore>> CacheCore::Create(std::shared_ptr<const Storage> storage,
                                                       TieredCacheOptions options) {
  if (storage == nullptr) return InvalidArgumentError("the cache has no storage to read from");
  AIT_RETURN_IF_ERROR(CheckOptions(options));
  auto core = std::shared_ptr<CacheCore>(new CacheCore());
  core->storage_ = std::move(storage);
  core->options_ = std::move(options);
  core->pool_ = std::make_unique<ReadPool>(core->options_.threads);
  const TieredCacheOptions& used = core->options_;
  for (const char* label : {"memory", "disk"}) {
    const bool is_memory = std::string_view(label) == "memory";
    if ((is_memory ? used.memory_bytes : used.disk_bytes) == 0) continue;
    const Status added =
        is_memory ? core->AddMemory()
                  : core->AddTier(label, DirectoryShelf(used.disk_directory, false, false),
                                  used.disk_bytes);
    if (added.ok()) continue;
    if (used.fault == CacheFault::kFail || !IsFault(added)) return added;
    Log(used.log, Severity::kWarning, "data",
        StrCat("the ", label, " tier of the cache is passed by: ", Message(added)));
    core->unusable_.emplace_back(label, added);
  }
  const auto boot = ReadSmallFile("/proc/sys/kernel/random/boot_id", 4096);
  core->boot_ = boot.ok() ? *boot : StrCat("unknown ", RandomBits());
  return core;
}

StatusOr<std::unique_ptr<CachedParts>> CacheCore::OpenParts(const std::string& url) const try {
  auto object = std::make_unique<CachedParts>();
  AIT_ASSIGN_OR_RETURN(object->remote, storage_->Open(url));
  const ObjectInfo& info = object->remote->info();
  const std::int64_t part = options_.part_bytes, entry = options_.entry_bytes;
  if (info.size_bytes < 0 || info.size_bytes > kMaxObjectBytes) {
    return InvalidArgumentError(storage_->name(), " states that ", url, " has ", info.size_bytes,
                                " bytes; the cache takes objects of at most 2^50");
  }
  if (info.size_bytes == 0 || tiers_.empty() || is_forked()) return object;
  if (info.size_bytes / entry >= kMaxEntries) {
    return ResourceExhaustedError(url, " of ", info.size_bytes, " bytes has more than ",
                                  kMaxEntries, " entries of the cache, of ", entry,
                                  " bytes each; raise entry_bytes");
  }
  if (!info.version.empty()) {
    AIT_ASSIGN_OR_RETURN(object->key, MakeCacheKey({"ait cache 1", info.url, info.version},
                                                   {info.size_bytes, part, entry}));
  } else if (options_.unversioned == UnversionedObjects::kCacheByAge) {
    // What is older lies under another name, whatever the clock of the machine is set to.
    const std::int64_t age = options_.unversioned_age.count();
    AIT_ASSIGN_OR_RETURN(
        object->key, MakeCacheKey({"ait cache 1 by age", info.url, boot_},
                                  {info.size_bytes, part, entry, age, BootMilliseconds() / age}));
  } else {
    return object;
  }
  object->hex = HexName(object->key);
  object->is_kept = true;
  object->slots = std::make_unique<CachedParts::Slot[]>(
      static_cast<std::size_t>((info.size_bytes + entry - 1) / entry));
  return object;
} catch (const std::bad_alloc&) {
  return ResourceExhaustedError("no memory to open ", url, " in the cache; raise entry_bytes");
}

CacheStatistics CacheCore::statistics() const {
  CacheStatistics all;
  const auto of = [&all](const std::string& label) -> CacheTierStatistics& {
    return label == "memory" ? all.memory : all.disk;
  };
  for (const auto& tier : tiers_) of(tier->label()) = tier->statistics();
  for (const auto& [label, fault] : unusable_) {
    of(label).faults = 1;
    of(label).last_fault = Message(fault);
  }
  all.downloads = downloads_;
  all.downloaded_bytes = downloaded_bytes_;
  all.promotions = promotions_;
  all.promoted_bytes = promoted_bytes_;
  all.pass_through_reads = pass_through_reads_;
  all.pass_through_bytes = pass_through_bytes_;
  all.waits = waits_;
  all.wait_time = std::chrono::nanoseconds(wait_time_);
  all.expired_waits = expired_waits_;
  return all;
}

}  // namespace internal
}  // namespace ait::inline v0

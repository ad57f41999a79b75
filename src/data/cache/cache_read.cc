// SPDX-License-Identifier: Apache-2.0
// The way of a read through the tiers.
#include <algorithm>
#include <cstring>

#include "ait/base/types.h"
#include "ait/data/crc32c.h"
#include "data/cache/cache_core_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

constexpr std::size_t kKeptBuffers = 4;

}  // namespace

struct CacheCore::Place {
  const CachedParts& object;
  std::int64_t entry = 0;
  int part = 0;
  std::int64_t offset = 0;                          // in the part
  bool must_keep = false;                           // a part that cannot be kept is an error
  std::uint64_t keep_after = CacheTier::kKeepNone;  // of `must_keep`
};

struct CacheCore::Buffer {
  explicit Buffer(const CacheCore& core) : core_(core) {
    {
      const std::lock_guard lock(core_.buffers_mutex_);
      if (!core_.buffers_.empty()) {
        bytes_ = std::move(core_.buffers_.back());
        core_.buffers_.pop_back();
      }
    }
    if (bytes_ == nullptr) {
      bytes_ = std::make_unique_for_overwrite<std::byte[]>(
          static_cast<std::size_t>(core_.options_.part_bytes));
    }
  }
  ~Buffer() {
    const std::lock_guard lock(core_.buffers_mutex_);
    if (core_.buffers_.size() < kKeptBuffers) core_.buffers_.push_back(std::move(bytes_));
  }
  std::span<std::byte> First(std::int64_t length) {
    return {bytes_.get(), static_cast<std::size_t>(length)};
  }

 private:
  const CacheCore& core_;
  std::unique_ptr<std::byte[]> bytes_;
};

PartMapHeader CacheCore::HeaderOf(const CachedParts& object, std::int64_t entry) const {
  const std::int64_t size = object.remote->info().size_bytes, first = entry * options_.entry_bytes;
  return {.part_bytes = options_.part_bytes,
          .first_byte = first,
          .length_bytes = std::min(options_.entry_bytes, size - first),
          .object_bytes = size,
          .key = object.key};
}

std::shared_ptr<CacheEntry> CacheCore::OpenNow(const CachedParts& object, std::int64_t entry,
                                               std::size_t tier) const {
  CachedParts::Slot& slot = object.slots[static_cast<std::size_t>(entry)];
  const std::lock_guard lock(slot.mutex);
  auto open = slot.entries[tier].lock();
  if (open != nullptr && open->is_retired()) open = nullptr;  // another is made in its place
  return open;
}

StatusOr<std::shared_ptr<CacheEntry>> CacheCore::Find(const Place& place, std::size_t tier,
                                                      bool make) const {
  if (auto entry = OpenNow(place.object, place.entry, tier)) return entry;
  const PartMapHeader header = HeaderOf(place.object, place.entry);
  const std::string name = StrCat(place.object.hex, "-", place.entry);
  AIT_ASSIGN_OR_RETURN(std::shared_ptr<CacheEntry> entry,
                       make ? tiers_[tier]->FindOrMake(name, header, place.keep_after)
                            : tiers_[tier]->Find(name, header));
  CachedParts::Slot& slot = place.object.slots[static_cast<std::size_t>(place.entry)];
  const std::lock_guard lock(slot.mutex);
  slot.entries[tier] = entry;
  return entry;
}

Status CacheCore::Read(const CachedParts& object, std::int64_t offset,
                       std::span<std::byte> out) const {
  AIT_RETURN_IF_ERROR(
      CheckRange(object.remote->info(), offset, static_cast<std::int64_t>(out.size())));
  if (!object.is_kept || is_forked()) {
    if (out.empty()) return OkStatus();
    ++pass_through_reads_;
    pass_through_bytes_ += static_cast<std::int64_t>(out.size());
    return object.remote->ReadAt(offset, out);
  }
  while (!out.empty()) {
    const std::int64_t entry = offset / options_.entry_bytes, inner = offset % options_.entry_bytes;
    const auto length =
        std::min(out.size(), static_cast<std::size_t>(options_.entry_bytes - inner));
    AIT_RETURN_IF_ERROR(ReadEntry(object, entry, inner, out.first(length)));
    offset += static_cast<std::int64_t>(length);
    out = out.subspan(length);
  }
  return OkStatus();
}

// What is ready in one tier is one read of one file.
Status CacheCore::ReadEntry(const CachedParts& object, std::int64_t entry, std::int64_t offset,
                            std::span<std::byte> out) const {
  const std::int64_t end = offset + static_cast<std::int64_t>(out.size());
  const int first = static_cast<int>(offset / options_.part_bytes);
  const int last = static_cast<int>((end - 1) / options_.part_bytes);
  std::array<std::shared_ptr<CacheEntry>, 2> files;
  for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
    files[tier] = OpenNow(object, entry, tier);
  }
  if (files[0] == nullptr && files[1] == nullptr) {  // the first read of this entry for the object
    for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
      auto found = Find({.object = object, .entry = entry}, tier, /*make=*/false);
      if (found.ok()) files[tier] = *std::move(found);  // an error is met again below
    }
  }
  for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
    const std::shared_ptr<CacheEntry>& open = files[tier];
    if (open == nullptr || !open->AreReady(first, last)) continue;
    if (open->Read(offset, out).ok()) {
      NoteHit(tier, {.object = object, .entry = entry, .part = first}, last, *open, out.size());
      return OkStatus();
    }
    // What cannot be read is looked at again; a file that was cut is left for another.
    for (int part = first; part <= last; ++part) open->Distrust(part);
    DiscardIfShort(*tiers_[tier], *open);
  }
  for (int part = first; part <= last; ++part) {
    const std::int64_t start = options_.part_bytes * part;
    const std::int64_t inner = std::max<std::int64_t>(offset - start, 0);
    const auto length =
        static_cast<std::size_t>(std::min(end, start + options_.part_bytes) - (start + inner));
    AIT_RETURN_IF_ERROR(ReadPart({.object = object, .entry = entry, .part = part, .offset = inner},
                                 out.first(length)));
    out = out.subspan(length);
  }
  return OkStatus();
}

std::int64_t CacheCore::KeptBytes(std::int64_t size) const {
  const auto of_entry = [this](std::int64_t length) -> std::int64_t {
    if (length == 0) return 0;
    const PartMapHeader header = {.part_bytes = options_.part_bytes, .length_bytes = length};
    return header.data_offset() + RoundUp(length, 4096);
  };
  return size / options_.entry_bytes * of_entry(options_.entry_bytes) +
         of_entry(size % options_.entry_bytes);
}

Status CacheCore::Warm(const CachedParts& object, std::int64_t offset, std::uint64_t began) const {
  const std::int64_t inner = offset % options_.entry_bytes;
  return ReadPart({.object = object,
                   .entry = offset / options_.entry_bytes,
                   .part = static_cast<int>(inner / options_.part_bytes),
                   .must_keep = true,
                   .keep_after = began},
                  {});
}

Status CacheCore::Bring(const CachedParts& object, std::int64_t offset) const {
  const std::int64_t inner = offset % options_.entry_bytes;
  return ReadPart({.object = object,
                   .entry = offset / options_.entry_bytes,
                   .part = static_cast<int>(inner / options_.part_bytes)},
                  {});
}

Status CacheCore::ReadPart(const Place& place, std::span<std::byte> out) const {
  Served served = Served::kAbsent;
  for (std::size_t tier = place.must_keep ? tiers_.size() - 1 : 0;
       tier < tiers_.size() && served == Served::kAbsent; ++tier) {
    AIT_ASSIGN_OR_RETURN(served, ReadFrom(tier, place, out));
  }
  for (std::size_t tier = tiers_.size(); tier-- > 0 && served == Served::kAbsent;) {
    AIT_ASSIGN_OR_RETURN(served, Download(tier, place, out));
    if (place.must_keep) break;
  }
  if (served == Served::kYes) return OkStatus();
  if (served == Served::kExpired) ++expired_waits_;
  if (place.must_keep) {
    const CacheTierStatistics tier = tiers_.back()->statistics();
    return UnavailableError(place.object.remote->info().url, ": part ", place.part, " of entry ",
                            place.entry, " is not kept by the ", tiers_.back()->label(), " tier ",
                            served == Served::kExpired
                                ? "in time: another process holds it and does not go on"
                            : tier.last_fault.empty() ? "since all that it holds is in use"
                                                      : StrCat("after: ", tier.last_fault));
  }
  return PassThrough(place, out);
}

Status CacheCore::PassThrough(const Place& place, std::span<std::byte> out) const {
  if (out.empty()) return OkStatus();  // it was to be kept, and cannot
  ++pass_through_reads_;
  pass_through_bytes_ += static_cast<std::int64_t>(out.size());
  return place.object.remote->ReadAt(
      place.entry * options_.entry_bytes + options_.part_bytes * place.part + place.offset, out);
}

StatusOr<CacheCore::Served> CacheCore::ReadFrom(std::size_t tier, const Place& place,
                                                std::span<std::byte> out) const {
  const StatusOr<std::shared_ptr<CacheEntry>> entry = Find(place, tier, /*make=*/false);
  if (!entry.ok()) {
    AIT_RETURN_IF_ERROR(NoteFault(*tiers_[tier], entry.status()));
    return Served::kAbsent;
  }
  if (*entry == nullptr) return Served::kAbsent;
  if (!(*entry)->is_ready(place.part)) {
    PartLock lock(*entry, place.part);
    bool waited = false;
    const std::int64_t since = NowNanoseconds();
    const bool locked = lock.LockHere(Deadline::After(options_.wait), &waited);
    NoteWait(waited, since);
    if (!locked) return Served::kExpired;
    const StatusOr<bool> ready = MakeReady(*tiers_[tier], **entry, place.part, lock);
    if (!ready.ok()) {
      AIT_RETURN_IF_ERROR(NoteFault(*tiers_[tier], ready.status()));
      return Served::kAbsent;
    }
    if (!*ready) return Served::kAbsent;
  }
  return ReadReady(tier, place, *entry, out);
}

StatusOr<CacheCore::Served> CacheCore::ReadReady(std::size_t tier, const Place& place,
                                                 const std::shared_ptr<CacheEntry>& entry,
                                                 std::span<std::byte> out) const {
  const Status read = entry->Read(options_.part_bytes * place.part + place.offset, out);
  if (!read.ok()) {
    entry->Distrust(place.part);
    // A file that was cut short is damage, put right by who downloads the part into another.
    DiscardIfShort(*tiers_[tier], *entry);
    if (read.code() != StatusCode::kDataLoss) {
      AIT_RETURN_IF_ERROR(NoteFault(*tiers_[tier], read));
    }
    return Served::kAbsent;
  }
  NoteHit(tier, place, place.part, *entry, out.size());
  return Served::kYes;
}

bool CacheCore::DiscardIfShort(CacheTier& tier, CacheEntry& entry) {
  if (entry.is_retired()) return true;
  const StatusOr<bool> is_short = entry.IsCutShort();
  if (!is_short.ok() || !*is_short) return false;
  tier.Discard(entry);
  return true;
}

StatusOr<bool> CacheCore::MakeReady(CacheTier& tier, CacheEntry& entry, int part,
                                    PartLock& lock) const {
  if (entry.is_ready(part)) return true;
  AIT_ASSIGN_OR_RETURN(CacheEntry::Found found, entry.Verify(part));
  if (found == CacheEntry::Found::kDamaged && DiscardIfShort(tier, entry)) return false;
  if (found == CacheEntry::Found::kDamaged) {
    // Another process may be putting it right.
    bool waited = false;
    AIT_ASSIGN_OR_RETURN(const bool alone,
                         lock.LockEverywhere(Deadline::After(Duration(0)), &waited));
    if (!alone) return false;
    AIT_ASSIGN_OR_RETURN(found, entry.Verify(part));
    if (found == CacheEntry::Found::kDamaged) {
      ++tier.counters.verification_failures;
      AIT_RETURN_IF_ERROR(entry.Drop(part));
    }
  }
  if (found == CacheEntry::Found::kReady) ++tier.counters.verified_parts;
  return found == CacheEntry::Found::kReady;
}

StatusOr<CacheCore::Served> CacheCore::Download(std::size_t number, const Place& place,
                                                std::span<std::byte> out, int attempts_left) const {
  CacheTier& tier = *tiers_[number];
  if (tier.is_resting()) return Served::kAbsent;
  const auto fault = [&](const Status& status) -> StatusOr<Served> {
    AIT_RETURN_IF_ERROR(NoteFault(tier, status));
    return Served::kAbsent;
  };
  const StatusOr<std::shared_ptr<CacheEntry>> found = Find(place, number, /*make=*/true);
  if (!found.ok()) return fault(found.status());
  if (*found == nullptr) {
    ++tier.counters.refusals;
    return Served::kAbsent;
  }
  const std::shared_ptr<CacheEntry>& entry = *found;

  PartLock lock(entry, place.part);
  bool waited = false;
  const std::int64_t since = NowNanoseconds();
  const Deadline deadline = Deadline::After(options_.wait);
  bool is_ours = lock.LockHere(deadline, &waited);
  if (is_ours && !entry->is_ready(place.part)) {
    const StatusOr<bool> everywhere = lock.LockEverywhere(deadline, &waited);
    if (!everywhere.ok()) return fault(everywhere.status());
    is_ours = *everywhere;
  }
  NoteWait(waited, since);
  if (!is_ours) return Served::kExpired;
  const StatusOr<bool> ready = MakeReady(tier, *entry, place.part, lock);
  if (!ready.ok()) return fault(ready.status());
  if (*ready) return ReadReady(number, place, entry, out);
  if (DiscardIfShort(tier, *entry)) {
    lock.Release();
    if (attempts_left > 0) return Download(number, place, out, attempts_left - 1);
    return Served::kAbsent;
  }

  const StatusOr<bool> room = tier.TakeRoom(*entry, place.part, place.keep_after);
  if (!room.ok()) return fault(room.status());
  if (!*room) {
    ++tier.counters.refusals;
    return Served::kAbsent;
  }
  const std::int64_t length = entry->header().PartLength(place.part);
  const bool is_whole = static_cast<std::int64_t>(out.size()) == length;
  std::optional<Buffer> buffer;
  if (!is_whole) buffer.emplace(*this);
  const std::span<std::byte> bytes = is_whole ? out : buffer->First(length);
  AIT_RETURN_IF_ERROR(place.object.remote->ReadAt(
      place.entry * options_.entry_bytes + options_.part_bytes * place.part, bytes));
  AIT_RETURN_IF_ERROR(CheckUnchanged(place.object));
  ++downloads_;
  downloaded_bytes_ += length;
  if (!is_whole && !out.empty()) {
    std::memcpy(out.data(), bytes.data() + place.offset, out.size());
  }
  const Status stored = entry->Store(place.part, bytes, tier.shelf().needs_sync());
  if (stored.ok()) {
    ++tier.counters.stored_parts;
    tier.counters.stored_bytes += length;
    tier.NoteUse(*entry, NowNanoseconds(), /*always=*/place.must_keep);
  } else if (!DiscardIfShort(tier, *entry)) {
    AIT_RETURN_IF_ERROR(NoteFault(tier, stored));
  }
  lock.Release();
  if (!stored.ok() && place.must_keep) return Served::kAbsent;
  if (number > 0 && !place.must_keep)
    KeepInMemory(place, [&] { return std::span<const std::byte>(bytes); });
  return Served::kYes;
}

// Answers of web servers and object stores name the version that they are of. A file says what it
// is now and then, and is not to be kept under the name of what it was.
Status CacheCore::CheckUnchanged(const CachedParts& object) const {
  const ObjectInfo& opened = object.remote->info();
  for (const char* scheme : {"http://", "https://", "s3://"}) {
    if (opened.url.starts_with(scheme)) return OkStatus();
  }
  if (opened.version.empty()) return OkStatus();
  const StatusOr<ObjectInfo> now = storage_->Stat(opened.url);
  if (now.status().code() == StatusCode::kNotFound) return OkStatus();  // deleted, and read on
  AIT_RETURN_IF_ERROR(now.status());
  if (now->version == opened.version && now->size_bytes == opened.size_bytes) return OkStatus();
  return AbortedError(opened.url, " changed while it was read into the cache; it was ",
                      opened.version, " of ", opened.size_bytes, " bytes, now it is ", now->version,
                      " of ", now->size_bytes);
}

bool CacheCore::KeepInMemory(
    const Place& place, const std::function<std::span<const std::byte>()>& bytes_of_part) const {
  CacheTier& tier = *tiers_.front();
  if (tier.is_resting()) return false;
  const auto keep = [&]() -> StatusOr<bool> {
    AIT_ASSIGN_OR_RETURN(const std::shared_ptr<CacheEntry> entry, Find(place, 0, /*make=*/true));
    if (entry == nullptr) {
      ++tier.counters.refusals;
      return false;
    }
    PartLock lock(entry, place.part);
    bool waited = false;
    const Deadline now = Deadline::After(Duration(0));
    if (!lock.LockHere(now, &waited) || entry->is_ready(place.part)) return false;
    AIT_ASSIGN_OR_RETURN(const bool alone, lock.LockEverywhere(now, &waited));
    if (!alone) return false;  // another process stores it
    if (const auto ready = MakeReady(tier, *entry, place.part, lock); ready.ok() && *ready) {
      return false;
    }
    if (DiscardIfShort(tier, *entry)) return false;  // the next use makes another
    AIT_ASSIGN_OR_RETURN(const bool room, tier.TakeRoom(*entry, place.part));
    if (!room) {
      ++tier.counters.refusals;
      return false;
    }
    const std::span<const std::byte> bytes = bytes_of_part();
    if (bytes.empty()) return false;
    const Status stored = entry->Store(place.part, bytes, tier.shelf().needs_sync());
    if (!stored.ok() && DiscardIfShort(tier, *entry)) return false;
    AIT_RETURN_IF_ERROR(stored);
    ++tier.counters.stored_parts;
    tier.counters.stored_bytes += static_cast<std::int64_t>(bytes.size());
    tier.NoteUse(*entry, NowNanoseconds());
    return true;
  };
  const StatusOr<bool> kept = keep();
  if (!kept.ok()) tier.NoteFault(kept.status());
  return kept.ok() && *kept;
}

void CacheCore::Promote(const Place& place, CacheEntry& from) const {
  const std::int64_t length = from.header().PartLength(place.part);
  std::optional<Buffer> buffer;
  const bool kept = KeepInMemory(place, [&]() -> std::span<const std::byte> {
    buffer.emplace(*this);
    const std::span<std::byte> bytes = buffer->First(length);
    const auto slot = ReadSlot(from.fd(), from.header(), place.part);
    // Damage since the first comparison is not to become a good copy.
    if (!slot.ok() || !slot->has_value() ||
        !from.Read(options_.part_bytes * place.part, bytes).ok() || Crc32c(bytes) != **slot) {
      from.Distrust(place.part);
      return {};
    }
    return bytes;
  });
  if (kept) {
    ++promotions_;
    promoted_bytes_ += length;
  }
}

void CacheCore::NoteHit(std::size_t number, const Place& place, int last_part, CacheEntry& entry,
                        std::size_t bytes) const {
  CacheTier& tier = *tiers_[number];
  const std::int64_t now = NowNanoseconds();
  const bool noted = tier.NoteUse(entry, now, /*always=*/place.must_keep);
  if (place.must_keep || bytes == 0) return;  // nobody has used it yet
  tier.counters.hits.fetch_add(1, std::memory_order_relaxed);
  tier.counters.hit_bytes.fetch_add(static_cast<std::int64_t>(bytes), std::memory_order_relaxed);
  if (tiers_.size() < 2) return;
  if (number == 0) {
    // What is used in memory is not the next to leave the disk.
    if (!noted) return;
    if (const auto below = OpenNow(place.object, place.entry, 1)) tiers_[1]->NoteUse(*below, now);
    return;
  }
  const std::int64_t interval =
      std::chrono::nanoseconds(std::chrono::milliseconds(options_.retry_after)).count();
  for (int part = place.part; part <= last_part; ++part) {
    if (!entry.IsTimeToPromote(part, now, interval)) continue;
    const auto above = OpenNow(place.object, place.entry, 0);
    if (above != nullptr && above->is_ready(part)) continue;
    Promote({.object = place.object, .entry = place.entry, .part = part}, entry);
  }
}

Status CacheCore::NoteFault(CacheTier& tier, const Status& fault) const {
  tier.NoteFault(fault);
  if (options_.fault == CacheFault::kReadThrough) return OkStatus();
  return Annotate(fault, StrCat("the ", tier.label(), " tier of the cache"));
}

void CacheCore::NoteWait(bool waited, std::int64_t since) const {
  if (!waited) return;
  ++waits_;
  wait_time_ += NowNanoseconds() - since;
}

}  // namespace internal
}  // namespace ait::inline v0

// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <thread>

#include "ait/base/types.h"
#include "ait/data/crc32c.h"
#include "data/cache/file_io_internal.h"
#include "data/cache/tier_internal.h"
#include "data/little_endian_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

constexpr char kControlMagic[] = "AITCTRL1";
constexpr std::int64_t kBlock = 4096;
constexpr std::size_t kMostCompared = std::size_t{1} << 20;  // parts of closed files, a bit each
// Whoever holds the lock works for milliseconds; if it was stopped, others do without the cache.
constexpr std::chrono::seconds kControlWait(2);
constexpr std::chrono::seconds kOpenWait(1);

StatusOr<std::int64_t> AllocatedBytes(int fd) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) return ErrnoError(errno, "cannot ask the size of an entry");
  return static_cast<std::int64_t>(info.st_blocks) * 512;
}

}  // namespace

struct CacheTier::Candidate {
  std::string name;
  std::uint64_t last_use = 0;
};

// Excludes the threads of this process, then other processes.
class CacheTier::ControlLock {
 public:
  ControlLock(CacheTier& tier, Deadline deadline)
      : fd_(tier.shelf_->control_fd()), mutex_(tier.control_mutex_, std::defer_lock) {
    std::chrono::microseconds pause(50);
    // No timed mutex: the thread sanitizer does not know how it is locked.
    while (!mutex_.try_lock()) {
      if (deadline.expired()) return;
      std::this_thread::sleep_for(pause);
    }
    for (;;) {
      const StatusOr<bool> locked = TryLockRange(fd_, 0, 1, LockKind::kExclusive);
      if (!locked.ok()) status_ = locked.status();
      if (!locked.ok() || *locked) {
        is_held_ = locked.ok();
        return;
      }
      if (deadline.expired()) return;
      std::this_thread::sleep_for(pause);
      pause = std::min(pause * 2, std::chrono::microseconds(2'000));
    }
  }
  ~ControlLock() {
    if (is_held_) UnlockRange(fd_, 0, 1);
  }
  bool is_held() const { return is_held_; }
  const Status& status() const { return status_; }

 private:
  const int fd_;
  std::unique_lock<std::mutex> mutex_;
  bool is_held_ = false;
  Status status_;
};

CacheTier::Control CacheTier::ReadControl() const {
  std::array<std::byte, 32> bytes;
  if (!ReadFully(shelf_->control_fd(), 0, bytes).ok() ||
      std::memcmp(bytes.data(), kControlMagic, 8) != 0 ||
      LoadLittleEndian<std::uint32_t>(bytes, 24) != Crc32c(std::span(bytes).first(24))) {
    return {};
  }
  return {.used_bytes = LoadLittleEndian<std::int64_t>(bytes, 8),
          .last_use = LoadLittleEndian<std::uint64_t>(bytes, 16),
          .is_whole = true};
}

std::uint64_t CacheTier::LastUse() const {
  const Control control = ReadControl();
  return control.is_whole ? control.last_use : kKeepNone;
}

Status CacheTier::WriteControl(const Control& control) const {
  std::array<std::byte, 32> bytes{};
  std::memcpy(bytes.data(), kControlMagic, 8);
  StoreLittleEndian(std::span(bytes), 8, control.used_bytes);
  StoreLittleEndian(std::span(bytes), 16, control.last_use);
  StoreLittleEndian(std::span(bytes), 24, Crc32c(std::span(bytes).first(24)));
  return WriteFully(shelf_->control_fd(), 0, bytes);
}

StatusOr<std::unique_ptr<CacheTier>> CacheTier::Create(std::unique_ptr<CacheShelf> shelf,
                                                       TierOptions options) {
  auto tier = std::unique_ptr<CacheTier>(new CacheTier(std::move(shelf), std::move(options)));
  const std::string& name = tier->shelf_->name();
  const ControlLock lock(*tier, Deadline::After(10 * kControlWait));
  if (!lock.status().ok()) return Annotate(lock.status(), name);
  if (!lock.is_held()) {
    return UnavailableError("the cache ", name,
                            " is locked by a process that does not go on; end it");
  }
  Control control = tier->ReadControl();
  AIT_RETURN_IF_ERROR(tier->CountFiles(control).status());
  AIT_RETURN_IF_ERROR(Annotate(tier->WriteControl(control), name));
  AIT_ASSIGN_OR_RETURN(const std::int64_t free, tier->shelf_->FreeBytes());
  const std::int64_t needed = tier->options_.budget_bytes - control.used_bytes;
  if (needed > free) {
    return ResourceExhaustedError("the ", tier->label(), " tier ", name, " has a budget of ",
                                  tier->options_.budget_bytes, " bytes and holds ",
                                  control.used_bytes, ", but only ", free,
                                  " are free; make room, or lower the budget");
  }
  return tier;
}

StatusOr<std::vector<CacheTier::Candidate>> CacheTier::CountFiles(Control& control) const {
  std::vector<Candidate> found;
  std::int64_t used = 0;
  std::uint64_t last_use = control.last_use;
  AIT_RETURN_IF_ERROR(shelf_->List([&](const std::string& name, std::int64_t bytes) {
    used += bytes;
    const StatusOr<FileDescriptor> fd = shelf_->Open(name);
    if (!fd.ok()) return;  // it takes room still, but we cannot remove it
    std::array<std::byte, 8> use{};
    // A file without a use is damaged: it goes first.
    if (!ReadFully(fd->get(), kLastUseOffset, use).ok()) use = {};
    const auto number = LoadLittleEndian<std::uint64_t>(use, 0);
    if (!control.is_whole) last_use = std::max(last_use, number);
    found.push_back({name, control.is_whole && number > control.last_use ? 0 : number});
  }));
  control = {.used_bytes = used, .last_use = last_use, .is_whole = true};
  return found;
}

std::optional<std::int64_t> CacheTier::TryRemove(const std::string& name) {
  const StatusOr<FileDescriptor> fd = shelf_->Open(name);
  if (!fd.ok()) return std::nullopt;
  const StatusOr<bool> locked = TryLockRange(fd->get(), 0, 1, LockKind::kExclusive);
  if (!locked.ok() || !*locked || !shelf_->IsOnShelf(name, fd->get())) return std::nullopt;
  const StatusOr<std::int64_t> bytes = AllocatedBytes(fd->get());
  if (!bytes.ok() || !shelf_->Remove(name).ok()) return std::nullopt;
  return *bytes;
}

bool CacheTier::ForgetIfIdle(const std::string& name) {
  const std::lock_guard lock(table_mutex_);
  const auto found = table_.find(name);
  if (found == table_.end()) return true;
  // A reader may still get hold of it through its object; then its lease is seen by TryRemove.
  if (found->second.use_count() > 1 ||
      NowNanoseconds() - found->second->last_read.load() < options_.lease) {
    return false;
  }
  table_.erase(found);
  return true;
}

StatusOr<bool> CacheTier::MakeRoom(Control& control, std::int64_t bytes, const std::string& keep,
                                   bool for_entry, std::uint64_t keep_after) {
  const std::int64_t budget = options_.budget_bytes;
  const std::size_t most = shelf_->max_entries();
  const auto is_enough = [&] {
    return bytes <= budget - control.used_bytes && (!for_entry || entries_ < most);
  };
  if (control.is_whole && is_enough()) return true;
  const std::int64_t now = NowNanoseconds();
  if (control.is_whole && now < no_room_until_.load()) return false;
  AIT_ASSIGN_OR_RETURN(std::vector<Candidate> candidates, CountFiles(control));
  entries_ = candidates.size();
  if (!is_enough()) {
    // Somewhat more than is needed, so that the next part finds room without a count; but not at
    // the cost of what somebody asked to keep, which goes only where there is no room without.
    const std::int64_t goal = budget - bytes - budget / 32;
    std::ranges::sort(candidates, {}, &Candidate::last_use);
    for (const Candidate& candidate : candidates) {
      if (is_enough() && control.used_bytes <= goal &&
          (!for_entry || entries_ <= most - most / 16)) {
        break;
      }
      if (candidate.last_use > keep_after) break;  // so was all that follows
      if (candidate.name == keep || !ForgetIfIdle(candidate.name)) continue;
      if (const auto freed = TryRemove(candidate.name); freed.has_value()) {
        control.used_bytes -= *freed;
        --entries_;
        ++counters.evictions;
        counters.evicted_bytes += *freed;
      }
    }
  }
  if (!is_enough()) no_room_until_ = now + std::min<std::int64_t>(options_.lease, 1'000'000'000);
  return is_enough();
}

StatusOr<bool> CacheTier::TakeRoom(const CacheEntry& entry, int part, std::uint64_t keep_after) {
  const PartMapHeader& header = entry.header();
  const std::int64_t length = header.PartLength(part);
  const std::int64_t bytes = RoundUp(length, kBlock);
  const ControlLock lock(*this, Deadline::After(kControlWait));
  AIT_RETURN_IF_ERROR(lock.status());
  if (!lock.is_held()) return false;
  Control control = ReadControl();
  StatusOr<bool> room = MakeRoom(control, bytes, entry.name(), /*for_entry=*/false, keep_after);
  if (room.ok() && *room) {
    // Under the lock, so that a count by another process sees it.
    int error = 0;
    // The file is not made longer: where it was cut, others would read the hole.
    while (::fallocate(entry.fd(), FALLOC_FL_KEEP_SIZE,
                       header.data_offset() + header.part_bytes * part, length) != 0 &&
           (error = errno) == EINTR) {
    }
    if (error == EINTR || error == EOPNOTSUPP || error == ENOSYS || error == EINVAL) error = 0;
    if (error == 0) {
      control.used_bytes += bytes;
    } else {
      room =
          ErrnoError(error, "no room for part ", part, " of ", shelf_->name(), "/", entry.name());
    }
  }
  // A count that failed says nothing: the next one to look counts.
  if (control.is_whole) AIT_RETURN_IF_ERROR(WriteControl(control));
  return room;
}

bool CacheTier::RemoveDamaged(const std::string& name, int fd) {
  // Under the lock, without which no other file gets this name.
  const ControlLock lock(*this, Deadline::After(kControlWait));
  return lock.is_held() && (!shelf_->IsOnShelf(name, fd) || shelf_->Remove(name).ok());
}

void CacheTier::Discard(CacheEntry& entry) {
  entry.Retire();
  {
    const std::lock_guard lock(table_mutex_);
    const auto found = table_.find(entry.name());
    if (found != table_.end() && found->second.get() == &entry) table_.erase(found);
  }
  ++counters.verification_failures;
  RemoveDamaged(entry.name(), entry.fd());
}

StatusOr<std::shared_ptr<CacheEntry>> CacheTier::OpenEntry(const std::string& name,
                                                           const PartMapHeader& header) {
  const Deadline deadline = Deadline::After(kOpenWait);
  for (;;) {
    StatusOr<FileDescriptor> fd = shelf_->Open(name);
    if (fd.status().code() == StatusCode::kNotFound) return nullptr;
    if (fd.status().code() == StatusCode::kResourceExhausted) {  // too many open files
      {
        const std::lock_guard lock(table_mutex_);
        CloseOldest();
      }
      fd = shelf_->Open(name);
    }
    AIT_RETURN_IF_ERROR(fd.status());
    AIT_ASSIGN_OR_RETURN(const bool locked, TryLockRange(fd->get(), 0, 1, LockKind::kShared));
    if (locked && shelf_->IsOnShelf(name, fd->get())) {
      const StatusOr<PartMapHeader> found = ReadHeader(fd->get());
      if (found.ok() && found->IsSame(header)) {
        auto entry = std::make_shared<CacheEntry>(name, *std::move(fd), *found);
        AIT_ASSIGN_OR_RETURN(const bool is_short, entry->IsCutShort());
        if (is_short) {
          Discard(*entry);
          return nullptr;
        }
        return entry;
      }
      if (!found.ok() && found.status().code() != StatusCode::kDataLoss) return found.status();
      ++counters.verification_failures;
      if (!RemoveDamaged(name, fd->get())) {
        return UnavailableError("entry ", name, " of ", shelf_->name(),
                                " is damaged and cannot be removed");
      }
      return nullptr;
    }
    if (deadline.expired()) {
      return UnavailableError("entry ", name, " of ", shelf_->name(), " stays locked");
    }
    // Somebody is about to remove it.
    fd->Close();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

StatusOr<std::shared_ptr<CacheEntry>> CacheTier::Find(const std::string& name,
                                                      const PartMapHeader& header) {
  {
    const std::lock_guard lock(table_mutex_);
    const auto found = table_.find(name);
    if (found != table_.end() && !found->second->is_retired()) return found->second;
    if (found != table_.end()) table_.erase(found);
  }
  AIT_ASSIGN_OR_RETURN(std::shared_ptr<CacheEntry> entry, OpenEntry(name, header));
  if (entry == nullptr) return entry;
  const std::lock_guard lock(table_mutex_);
  if (const auto known = compared_.find(name); known != compared_.end()) {
    // Another file by this name has another number.
    if (known->second.nonce == entry->header().nonce) entry->Remember(known->second.parts);
    compared_parts_ -= known->second.parts.size();
    compared_.erase(known);
  }
  if (table_.size() >= static_cast<std::size_t>(options_.max_open_entries)) CloseOldest();
  return table_.emplace(name, std::move(entry)).first->second;
}

StatusOr<std::shared_ptr<CacheEntry>> CacheTier::FindOrMake(const std::string& name,
                                                            const PartMapHeader& header,
                                                            std::uint64_t keep_after) {
  for (int attempt = 0; attempt < 10; ++attempt) {
    AIT_ASSIGN_OR_RETURN(std::shared_ptr<CacheEntry> entry, Find(name, header));
    if (entry != nullptr) return entry;
    const ControlLock lock(*this, Deadline::After(kControlWait));
    AIT_RETURN_IF_ERROR(lock.status());
    if (!lock.is_held()) return nullptr;
    if (shelf_->Open(name).ok()) continue;  // made meanwhile
    Control control = ReadControl();
    AIT_ASSIGN_OR_RETURN(const bool room, MakeRoom(control, header.data_offset(), name,
                                                   /*for_entry=*/true, keep_after));
    Status made;
    if (room) {
      made = shelf_->Make(name, header, ++control.last_use);
      if (made.ok()) {
        control.used_bytes += header.data_offset();
        ++entries_;
      }
    }
    if (control.is_whole) AIT_RETURN_IF_ERROR(WriteControl(control));
    AIT_RETURN_IF_ERROR(made);
    if (!room) return nullptr;
  }
  return nullptr;  // evicted again and again by others
}

bool CacheTier::NoteUse(CacheEntry& entry, std::int64_t now, bool always) {
  entry.last_read.store(now, std::memory_order_relaxed);
  std::int64_t noted = entry.last_noted.load(std::memory_order_relaxed);
  if (!always && noted != 0 && now - noted < options_.use_interval) return false;
  if (!entry.last_noted.compare_exchange_strong(noted, now) && !always) return false;
  {
    const ControlLock lock(*this, Deadline::After(always ? Duration(kControlWait) : Duration(0)));
    Control control = lock.is_held() ? ReadControl() : Control();
    if (control.is_whole) {  // else the order is a little wrong, which is allowed
      ++control.last_use;
      const auto use = std::as_bytes(std::span(&control.last_use, 1));
      if (!WriteControl(control).ok() || !WriteFully(entry.fd(), kLastUseOffset, use).ok()) {
        return false;
      }
    }
  }
  if (now >= close_idle_at_.load(std::memory_order_relaxed)) {
    close_idle_at_ = now + std::max<std::int64_t>(options_.lease / 2, 100'000'000);
    CloseIdle();
  }
  return true;
}

void CacheTier::CloseIdle() {
  const std::lock_guard lock(table_mutex_);
  const std::int64_t now = NowNanoseconds();
  std::erase_if(table_, [&](const auto& item) {
    if (item.second.use_count() != 1 || now - item.second->last_read.load() < options_.lease ||
        now - item.second->last_read.load() < 100'000'000) {
      return false;
    }
    RememberCompared(*item.second);
    return true;
  });
}

void CacheTier::CloseOldest() {
  // A quarter at once, so that this is rare.
  std::vector<std::pair<std::int64_t, std::string>> idle;
  for (const auto& [name, entry] : table_) {
    if (entry.use_count() == 1) idle.emplace_back(entry->last_read.load(), name);
  }
  std::ranges::sort(idle);
  idle.resize(std::min(idle.size(), table_.size() / 4 + 1));
  for (const auto& [time, name] : idle) {
    const auto found = table_.find(name);
    RememberCompared(*found->second);
    table_.erase(found);
  }
}

void CacheTier::RememberCompared(const CacheEntry& entry) {
  if (entry.is_retired()) return;
  if (compared_parts_ > kMostCompared) {  // to be compared once more is no harm
    compared_.clear();
    compared_parts_ = 0;
  }
  Compared& compared = compared_[entry.name()];
  compared_parts_ -= compared.parts.size();
  compared = {.nonce = entry.header().nonce, .parts = entry.ReadyParts()};
  compared_parts_ += compared.parts.size();
}

void CacheTier::NoteFault(const Status& fault) {
  ++counters.faults;
  const std::int64_t now = NowNanoseconds();
  const bool is_first = resting_until_.exchange(now + options_.retry_after) < now;
  const std::lock_guard lock(fault_mutex_);
  last_fault_ = Message(fault);
  if (is_first) {
    Log(options_.log, Severity::kWarning, "data",
        StrCat("the ", label(), " tier of the cache is passed by: ", last_fault_));
  }
}

CacheTierStatistics CacheTier::statistics() const {
  const std::lock_guard lock(fault_mutex_);
  return {.hits = counters.hits,
          .hit_bytes = counters.hit_bytes,
          .stored_parts = counters.stored_parts,
          .stored_bytes = counters.stored_bytes,
          .verified_parts = counters.verified_parts,
          .verification_failures = counters.verification_failures,
          .evictions = counters.evictions,
          .evicted_bytes = counters.evicted_bytes,
          .refusals = counters.refusals,
          .faults = counters.faults,
          .last_fault = last_fault_};
}

}  // namespace internal
}  // namespace ait::inline v0

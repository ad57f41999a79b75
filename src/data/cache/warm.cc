// SPDX-License-Identifier: Apache-2.0
// Bringing whole prefixes into the cache.
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "ait/data/cache/tiered_cache.h"
#include "data/cache/cache_core_internal.h"

namespace ait::inline v0 {
namespace {

using internal::CacheCore;
using internal::CachedParts;

// Hands out the parts of the objects in order; an object is opened by who gets its first part.
class Warming {
 public:
  Warming(const CacheCore& core, std::vector<ObjectInfo> objects, const WarmOptions& options)
      : core_(core),
        objects_(std::move(objects)),
        options_(options),
        began_(core.tiers().back()->LastUse()) {
    progress_.objects = static_cast<std::int64_t>(objects_.size());
    for (const ObjectInfo& object : objects_) progress_.bytes += object.size_bytes;
  }

  StatusOr<WarmProgress> Run() {
    const auto count = static_cast<std::size_t>(options_.threads);
    std::vector<std::jthread> threads;
    try {
      for (std::size_t i = 1; i < count; ++i) threads.emplace_back([this] { Work(); });
    } catch (const std::system_error&) {
      // Fewer threads do it too.
    }
    Work();
    threads.clear();  // joins
    if (!status_.ok()) return status_;
    return progress_;
  }

 private:
  struct Task {
    std::shared_ptr<CachedParts> parts;
    std::int64_t offset = 0;
    std::int64_t length = 0;
  };

  void Work() {
    for (;;) {
      StatusOr<Task> task = Next();
      if (task.ok() && task->parts == nullptr) return;
      Status done = task.status();
      if (done.ok() && task->length > 0) done = core_.Warm(*task->parts, task->offset, began_);
      const std::lock_guard lock(mutex_);
      if (done.ok() && status_.ok()) {
        progress_.bytes_done += task->length;
        const std::int64_t size = task->parts->remote->info().size_bytes;
        if ((done_of_[task->parts.get()] += task->length) == size) {
          ++progress_.objects_done;
          done_of_.erase(task->parts.get());
        }
        if (options_.progress) done = options_.progress(progress_);
      }
      if (!done.ok() && status_.ok()) status_ = done;
      changed_.notify_all();
    }
  }

  // The next part of an object that is open; else opens one more.
  StatusOr<Task> Next() {
    std::unique_lock lock(mutex_);
    for (;;) {
      if (!status_.ok()) return Task();
      if (!open_.empty()) return Take();
      if (next_object_ < objects_.size()) break;
      if (opening_ == 0) return Task();
      changed_.wait(lock);  // another thread opens an object that may have parts for this one
    }
    const ObjectInfo& listed = objects_[next_object_++];
    ++opening_;
    lock.unlock();
    StatusOr<std::shared_ptr<CachedParts>> opened = Open(listed);
    lock.lock();
    --opening_;
    changed_.notify_all();
    AIT_RETURN_IF_ERROR(opened.status());
    open_.push_back({*std::move(opened)});
    return Take();
  }

  // Under mutex_.
  Task Take() {
    Task& next = open_.front();
    const std::int64_t size = next.parts->remote->info().size_bytes;
    next.length = std::min(core_.options().part_bytes, size - next.offset);
    const Task task = next;
    next.offset += task.length;
    if (next.offset == size) open_.pop_front();
    return task;
  }

  StatusOr<std::shared_ptr<CachedParts>> Open(const ObjectInfo& listed) const {
    AIT_ASSIGN_OR_RETURN(std::shared_ptr<CachedParts> parts, core_.OpenParts(listed.url));
    const std::int64_t size = parts->remote->info().size_bytes;
    if (size > 0 && !parts->is_kept) {
      return FailedPreconditionError(
          listed.url, core_.tiers().empty() ? " cannot be kept: no tier of the cache can be used"
                                            : " has no version, so the cache does not keep it; see "
                                              "UnversionedObjects::kCacheByAge");
    }
    if (size != listed.size_bytes) {
      return AbortedError(listed.url, " had ", listed.size_bytes, " bytes when it was listed, now ",
                          size, "; start again");
    }
    return parts;
  }

  const CacheCore& core_;
  const std::vector<ObjectInfo> objects_;
  const WarmOptions& options_;
  const std::uint64_t began_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::size_t next_object_ = 0;
  int opening_ = 0;
  std::deque<Task> open_;  // with parts that nobody has taken
  WarmProgress progress_;
  std::unordered_map<const CachedParts*, std::int64_t> done_of_;
  Status status_;
};

}  // namespace

StatusOr<WarmProgress> TieredCache::Warm(const std::string& prefix,
                                         const WarmOptions& options) const {
  if (options.threads < 1 || options.threads > 1024) {
    return InvalidArgumentError("warming by ", options.threads, " threads; give 1 to 1024");
  }
  if (core_->is_forked()) {
    return FailedPreconditionError(
        "the cache belongs to the parent of this process; make another after the fork");
  }
  std::vector<ObjectInfo> objects;
  std::int64_t bytes = 0;
  AIT_RETURN_IF_ERROR(core_->storage().List(prefix, [&](const ObjectInfo& object) {
    if (object.size_bytes < 0 || object.size_bytes > internal::kMaxObjectBytes) {
      return InvalidArgumentError(core_->storage().name(), " states that ", object.url, " has ",
                                  object.size_bytes,
                                  " bytes; the cache takes objects of at most 2^50");
    }
    objects.push_back(object);
    // As far as is needed to see that it is too much.
    if (bytes <= internal::kMaxObjectBytes) bytes += core_->KeptBytes(object.size_bytes);
    return OkStatus();
  }));
  if (core_->tiers().empty()) {
    return FailedPreconditionError("no tier of the cache can be used");
  }
  if (const auto& tier = *core_->tiers().back(); bytes > tier.budget_bytes()) {
    return ResourceExhaustedError(prefix, " takes ", bytes, " bytes for ", objects.size(),
                                  " objects, the budget of the ", tier.label(), " tier is ",
                                  tier.budget_bytes(), "; raise it, or warm less");
  }
  return Warming(*core_, std::move(objects), options).Run();
}

}  // namespace ait::inline v0

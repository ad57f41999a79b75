// SPDX-License-Identifier: Apache-2.0
// Several parts at once: the reads of a batch, and what a stream will ask for next.
#include <algorithm>
#include <condition_variable>
#include <map>
#include <utility>

#include "data/cache/cache_core_internal.h"
#include "data/storage/block_pool_internal.h"
#include "data/storage/read_stream_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

constexpr std::size_t kBlockAlignment = 4096;
constexpr std::int64_t kLeastPartsAhead = 2;

// What lies in one part of one of the reads.
struct PartOfRead {
  std::size_t read = 0;
  std::int64_t offset = 0;
  std::span<std::byte> out;
  Status status;
};

// The pieces of a part belong to one thread: the first brings the part, the others find it.
class Batch {
 public:
  explicit Batch(std::map<std::int64_t, std::vector<PartOfRead>> parts) {
    for (auto& [part, pieces] : parts) groups_.push_back(std::move(pieces));
  }

  std::size_t size() const { return groups_.size(); }
  std::vector<std::vector<PartOfRead>>& groups() { return groups_; }

  /// Takes groups until none is left.
  void Work(const CacheCore& core, const CachedParts& object) {
    std::unique_lock lock(mutex_);
    while (next_ < groups_.size()) {
      std::vector<PartOfRead>& group = groups_[next_++];
      lock.unlock();
      for (PartOfRead& piece : group) piece.status = core.Read(object, piece.offset, piece.out);
      lock.lock();
      if (++done_ == groups_.size()) finished_.notify_all();
    }
  }
  void Wait() {
    std::unique_lock lock(mutex_);
    finished_.wait(lock, [this] { return done_ == groups_.size(); });
  }

 private:
  std::mutex mutex_;
  std::condition_variable finished_;
  std::vector<std::vector<PartOfRead>> groups_;
  std::size_t next_ = 0, done_ = 0;
};

// Blocks are copied by who asks for them; the parts that follow are brought by threads of the
// cache, which nobody waits for.
class CachedStream final : public ObjectStream {
 public:
  CachedStream(std::shared_ptr<const CacheCore> core, std::shared_ptr<const CachedParts> object,
               StreamRange range, const StreamOptions& options)
      : core_(std::move(core)),
        object_(std::move(object)),
        at_(range.begin),
        end_(range.end),
        depth_(options.depth),
        pool_(options.memory, static_cast<std::size_t>(options.block_bytes), kBlockAlignment) {}
  ~CachedStream() override { *is_over_ = true; }

  StatusOr<ByteView> Next() override {
    if (!status_.ok()) return status_;
    StatusOr<ByteView> block = Read();
    status_ = block.status();
    return block;
  }

 private:
  StatusOr<ByteView> Read() {
    if (at_ == end_) return ByteView();
    AIT_ASSIGN_OR_RETURN(std::shared_ptr<HostBuffer> block, pool_.Take());
    const auto length = std::min(static_cast<std::int64_t>(block->size_bytes()), end_ - at_);
    if (depth_ > 0) BringAhead(length);
    const std::span<std::byte> out = block->bytes().first(static_cast<std::size_t>(length));
    AIT_RETURN_IF_ERROR(core_->Read(*object_, at_, out));
    at_ += length;
    return ByteView(out, std::move(block));
  }

  void BringAhead(std::int64_t length) {
    const std::int64_t part = core_->options().part_bytes;
    const std::int64_t ahead = std::max(length * (depth_ + 1), part * kLeastPartsAhead);
    const std::int64_t until = std::min(end_, at_ + std::min(ahead, end_ - at_) + 1);
    next_ = std::max(next_, at_ / part + 1);  // the part of the block is brought by its reader
    for (; next_ * part < until; ++next_) {
      if (!core_->BringSoon(object_, next_ * part, is_over_)) return;
    }
  }

  const std::shared_ptr<const CacheCore> core_;
  const std::shared_ptr<const CachedParts> object_;
  const std::shared_ptr<std::atomic<bool>> is_over_ = std::make_shared<std::atomic<bool>>(false);
  std::int64_t at_;
  const std::int64_t end_;
  const std::int64_t depth_;
  std::int64_t next_ = 0;  // the next part to bring
  BlockPool pool_;
  Status status_;
};

}  // namespace

bool CacheCore::IsReady(const CachedParts& object, std::int64_t offset) const {
  const std::int64_t entry = offset / options_.entry_bytes;
  const int part = static_cast<int>(offset % options_.entry_bytes / options_.part_bytes);
  for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
    const auto open = OpenNow(object, entry, tier);
    if (open != nullptr && open->is_ready(part)) return true;
  }
  return false;
}

bool CacheCore::BringSoon(std::shared_ptr<const CachedParts> object, std::int64_t offset,
                          std::shared_ptr<const std::atomic<bool>> is_over) const {
  if (is_forked()) return false;
  if (IsReady(*object, offset)) return true;
  // The pool is of this object, so it is there as long as the task.
  return pool_
      ->Submit([this, object = std::move(object), offset, is_over = std::move(is_over)] {
        // An error is met again by who reads.
        if (!*is_over) static_cast<void>(Bring(*object, offset));
      })
      .ok();
}

void CacheCore::ReadMany(const std::shared_ptr<const CachedParts>& object,
                         std::span<ObjectRead> reads) const {
  if (!object->is_kept || is_forked()) {
    for (const ObjectRead& read : reads) {
      if (read.out.empty()) continue;
      ++pass_through_reads_;
      pass_through_bytes_ += static_cast<std::int64_t>(read.out.size());
    }
    object->remote->ReadMany(reads);
    return;
  }
  const std::int64_t part_bytes = options_.part_bytes;
  std::map<std::int64_t, std::vector<PartOfRead>> missing;
  for (std::size_t i = 0; i < reads.size(); ++i) {
    ObjectRead& read = reads[i];
    const auto length = static_cast<std::int64_t>(read.out.size());
    read.status = CheckRange(object->remote->info(), read.offset_bytes, length);
    if (!read.status.ok() || length == 0) continue;
    const std::int64_t first = read.offset_bytes / part_bytes;
    const std::int64_t last = (read.offset_bytes + length - 1) / part_bytes;
    bool is_ready = true;
    for (std::int64_t part = first; part <= last && is_ready; ++part) {
      is_ready = IsReady(*object, part * part_bytes);
    }
    if (is_ready) {
      read.status = Read(*object, read.offset_bytes, read.out);
      continue;
    }
    for (std::int64_t part = first; part <= last; ++part) {
      const std::int64_t begin = std::max(part * part_bytes, read.offset_bytes);
      const std::int64_t end = std::min((part + 1) * part_bytes, read.offset_bytes + length);
      missing[part].push_back(
          {.read = i,
           .offset = begin,
           .out = read.out.subspan(static_cast<std::size_t>(begin - read.offset_bytes),
                                   static_cast<std::size_t>(end - begin))});
    }
  }
  if (missing.empty()) return;
  // Helpers that come too late find nothing to do, and nothing of the caller's.
  const auto batch = std::make_shared<Batch>(std::move(missing));
  for (std::size_t i = 1; i < std::min(batch->size(), pool_->limit()); ++i) {
    if (!pool_->Submit([this, batch, object] { batch->Work(*this, *object); }).ok()) break;
  }
  batch->Work(*this, *object);
  batch->Wait();
  for (const std::vector<PartOfRead>& group : batch->groups()) {  // in the order of parts
    for (const PartOfRead& piece : group) {
      Status& status = reads[piece.read].status;
      if (status.ok()) status = piece.status;
    }
  }
}

StatusOr<std::unique_ptr<ObjectStream>> CacheCore::Stream(std::shared_ptr<const CacheCore> core,
                                                          std::shared_ptr<const CachedParts> object,
                                                          const StreamOptions& options) {
  if (!object->is_kept || core->is_forked()) return object->remote->Stream(options);
  AIT_ASSIGN_OR_RETURN(const StreamRange range, CheckedRange(object->remote->info(), options));
  return std::make_unique<CachedStream>(std::move(core), std::move(object), range, options);
}

}  // namespace internal
}  // namespace ait::inline v0

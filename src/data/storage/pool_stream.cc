// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>

#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "ait/memory/fork_safe_mutex.h"
#include "data/storage/block_pool_internal.h"
#include "data/storage/local_engines_internal.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::size_t kBlockAlignment = 4096;

// A descriptor by which each read is one request to the device or server. By that of the file, reads
// that come out of order would mislead the kernel in what it reads ahead by itself.
class Descriptor {
 public:
  explicit Descriptor(std::shared_ptr<const LocalFile> file) : file_(std::move(file)) {
    StatusOr<FileDescriptor> own = file_->OpenAgain(0);
    if (own.ok() && ::posix_fadvise(own->get(), 0, 0, POSIX_FADV_RANDOM) == 0) {
      own_ = std::move(*own);
    }
  }

  Status Read(std::int64_t offset_bytes, std::span<std::byte> out) const {
    AIT_RETURN_IF_ERROR(
        file_->ReadUnchecked(offset_bytes, out, own_.is_open() ? own_.get() : file_->fd()));
    const auto length = static_cast<std::int64_t>(out.size());
    return file_->CheckAfter(offset_bytes + length, length);
  }

 private:
  const std::shared_ptr<const LocalFile> file_;
  FileDescriptor own_;
};

// One block that is being read. Shared with the task, which may outlive the stream.
struct Slot {
  std::shared_ptr<HostBuffer> block;
  std::int64_t offset = 0;
  std::span<std::byte> out;
  Status status;
  bool done = false;
};

struct Progress {
  std::mutex mutex;
  std::condition_variable changed;
  bool abandoned = false;
};

class PoolStream final : public ObjectStream {
 public:
  PoolStream(std::shared_ptr<const LocalFile> file, std::shared_ptr<ReadPool> pool,
             StreamRange range, const StreamOptions& options)
      : path_(file->path()),
        file_(std::make_shared<const Descriptor>(std::move(file))),
        threads_(std::move(pool)),
        at_(range.begin),
        end_(range.end),
        most_(static_cast<std::size_t>(options.depth) + 1),
        blocks_(options.memory, static_cast<std::size_t>(options.block_bytes), kBlockAlignment) {}

  ~PoolStream() override {
    if (forks_ != ForkSafeMutex::forks()) return;
    const std::lock_guard lock(progress_->mutex);
    progress_->abandoned = true;
  }

  StatusOr<ByteView> Next() override {
    if (status_.ok() && forks_ != ForkSafeMutex::forks()) {
      status_ = FailedPreconditionError("a stream of ", path_,
                                        " does not go on in a forked child; open another");
    }
    AIT_RETURN_IF_ERROR(status_);
    status_ = Fill();
    AIT_RETURN_IF_ERROR(status_);
    if (under_way_.empty()) return ByteView();
    const std::shared_ptr<Slot> slot = std::move(under_way_.front());
    under_way_.pop_front();
    {
      std::unique_lock lock(progress_->mutex);
      progress_->changed.wait(lock, [&] { return slot->done; });
    }
    status_ = slot->status;
    AIT_RETURN_IF_ERROR(status_);
    return ByteView(slot->out, std::move(slot->block));
  }

 private:
  Status Fill() {
    while (under_way_.size() < most_ && at_ < end_) {
      auto slot = std::make_shared<Slot>();
      AIT_ASSIGN_OR_RETURN(slot->block, blocks_.Take());
      const auto length =
          std::min(static_cast<std::int64_t>(slot->block->size_bytes()), end_ - at_);
      slot->offset = at_;
      slot->out = slot->block->bytes().first(static_cast<std::size_t>(length));
      AIT_RETURN_IF_ERROR(threads_->Submit(
          [slot, file = file_, progress = progress_] { Read(*slot, *file, *progress); }));
      at_ += length;
      under_way_.push_back(std::move(slot));
    }
    return OkStatus();
  }

  static void Read(Slot& slot, const Descriptor& file, Progress& progress) {
    {
      const std::lock_guard lock(progress.mutex);
      if (progress.abandoned) return;
    }
    Status status = file.Read(slot.offset, slot.out);
    const std::lock_guard lock(progress.mutex);
    slot.status = std::move(status);
    slot.done = true;
    progress.changed.notify_all();
  }

  const std::string path_;
  const std::shared_ptr<const Descriptor> file_;
  const std::shared_ptr<ReadPool> threads_;
  const std::shared_ptr<Progress> progress_ = std::make_shared<Progress>();
  std::int64_t at_;
  const std::int64_t end_;
  const std::size_t most_;
  BlockPool blocks_;
  std::deque<std::shared_ptr<Slot>> under_way_;  // in the order of the file
  Status status_;
  const int forks_ = ForkSafeMutex::forks();
};

}  // namespace

StatusOr<std::unique_ptr<ObjectStream>> StreamByPool(std::shared_ptr<const LocalFile> file,
                                                     std::shared_ptr<ReadPool> pool,
                                                     StreamRange range,
                                                     const StreamOptions& options) {
  return std::make_unique<PoolStream>(std::move(file), std::move(pool), range, options);
}

}  // namespace ait::inline v0::internal

// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <deque>
#include <utility>

#include "ait/memory/fork_safe_mutex.h"
#include "base/io_ring.h"
#include "data/storage/block_pool_internal.h"
#include "data/storage/local_engines_internal.h"

namespace ait::inline v0::internal {
namespace {

// A block on its way from the disk to memory, around the page cache.
struct Slot {
  std::shared_ptr<HostBuffer> block;
  std::int64_t offset = 0;  // in the file, aligned
  std::size_t asked = 0;    // aligned; the file may end before
  std::size_t head = 0;     // bytes before those that are wanted
  std::size_t needed = 0;   // bytes up to the last that is wanted
  std::size_t moved = 0;
  bool done = false;
};

// The ring may be driven by one thread after the other, as the stream may: so it is not one of the
// rings that are bound to a thread, whose reads no other could wait for.
class RingStream final : public ObjectStream {
 public:
  RingStream(std::shared_ptr<const LocalFile> file, FileDescriptor fd, std::unique_ptr<IoRing> ring,
             std::int64_t alignment, StreamRange range, const StreamOptions& options)
      : file_(std::move(file)),
        fd_(std::move(fd)),
        ring_(std::move(ring)),
        alignment_(alignment),
        at_(range.begin / alignment * alignment),
        begin_(range.begin),
        end_(range.end),
        most_(static_cast<std::size_t>(options.depth) + 1),
        blocks_(options.memory, static_cast<std::size_t>(RoundUp(options.block_bytes)),
                static_cast<std::size_t>(alignment)) {}

  ~RingStream() override {
    if (forks_ != ForkSafeMutex::forks()) {
      // The ring is the parent's, and so are the blocks that it fills.
      static_cast<void>(ring_.release());
      LeaveBlocks();
      return;
    }
    // The kernel writes into the blocks until the reads have ended.
    while (pending_ > 0 && TakeOne(/*goes_on=*/false).ok()) {
    }
    if (pending_ > 0) LeaveBlocks();
  }

  StatusOr<ByteView> Next() override {
    if (status_.ok() && forks_ != ForkSafeMutex::forks()) {
      status_ = FailedPreconditionError("a stream of ", file_->path(),
                                        " does not go on in a forked child; open another");
    }
    if (!status_.ok()) return status_;
    StatusOr<ByteView> block = NextBlock();
    status_ = block.status();
    return block;
  }

 private:
  std::int64_t RoundUp(std::int64_t bytes) const {
    return (bytes + alignment_ - 1) / alignment_ * alignment_;
  }

  // Blocks that the kernel may still write into are never freed.
  void LeaveBlocks() {
    for (Slot& slot : under_way_) {
      if (!slot.done) static_cast<void>(new std::shared_ptr<HostBuffer>(std::move(slot.block)));
    }
  }

  StatusOr<ByteView> NextBlock() {
    while (under_way_.size() < most_ && at_ < end_) AIT_RETURN_IF_ERROR(StartOne());
    if (under_way_.empty()) return ByteView();
    Slot& slot = under_way_.front();
    while (!slot.done) AIT_RETURN_IF_ERROR(TakeOne(/*goes_on=*/true));
    const std::span<std::byte> wanted =
        slot.block->bytes().subspan(slot.head, slot.needed - slot.head);
    const std::int64_t offset = slot.offset + static_cast<std::int64_t>(slot.head);
    if (slot.moved < slot.needed) {
      // Whatever it was, pread knows how to go on, or can say why not.
      AIT_RETURN_IF_ERROR(file_->ReadUnchecked(offset, wanted));
    }
    const auto length = static_cast<std::int64_t>(wanted.size());
    AIT_RETURN_IF_ERROR(file_->CheckAfter(offset + length, length));
    ByteView view(wanted, std::move(slot.block));
    under_way_.pop_front();
    return view;
  }

  Status StartOne() {
    Slot slot;
    AIT_ASSIGN_OR_RETURN(slot.block, blocks_.Take());
    const auto room = static_cast<std::int64_t>(slot.block->size_bytes());
    const std::int64_t until = std::min(at_ + room, end_);
    slot.offset = at_;
    slot.head = static_cast<std::size_t>(std::max(begin_ - at_, std::int64_t{0}));
    slot.needed = static_cast<std::size_t>(until - at_);
    slot.asked = static_cast<std::size_t>(RoundUp(until - at_));
    at_ += room;
    under_way_.push_back(std::move(slot));
    Slot& placed = under_way_.back();  // a deque does not move the others
    // A page that the device fills must not be shared with a child: a write to it by either would
    // give the parent another page, without the data.
    ::madvise(placed.block->data(), placed.block->size_bytes(), MADV_DONTFORK);
    Submit(placed);
    return OkStatus();
  }

  // Pread reads what the ring did not.
  void Submit(Slot& slot) {
    const Status status =
        ring_->Start({.fd = fd_.get(),
                      .data = slot.block->data() + slot.moved,
                      .bytes = static_cast<std::uint32_t>(slot.asked - slot.moved),
                      .offset = static_cast<std::uint64_t>(slot.offset) + slot.moved,
                      .tag = &slot});
    if (status.ok()) {
      ++pending_;
    } else {
      End(slot);
    }
  }

  void End(Slot& slot) {
    ::madvise(slot.block->data(), slot.block->size_bytes(), MADV_DOFORK);
    slot.done = true;
  }

  // Waits for a read of any block; asks for its rest if it was cut short.
  Status TakeOne(bool goes_on) {
    AIT_ASSIGN_OR_RETURN(const IoRing::Done done, ring_->Wait());
    --pending_;
    Slot& slot = *static_cast<Slot*>(done.tag);
    if (done.result > 0) slot.moved += static_cast<std::size_t>(done.result);
    const bool is_short = slot.moved < slot.needed;
    const bool is_aligned = slot.moved % static_cast<std::size_t>(alignment_) == 0;
    const bool has_rest = (done.result > 0 && is_aligned) || done.result == -EINTR;
    if (goes_on && is_short && has_rest) {
      Submit(slot);
    } else {
      End(slot);
    }
    return OkStatus();
  }

  const std::shared_ptr<const LocalFile> file_;
  const FileDescriptor fd_;
  std::unique_ptr<IoRing> ring_;
  const std::int64_t alignment_;
  std::int64_t at_;  // aligned
  const std::int64_t begin_;
  const std::int64_t end_;
  const std::size_t most_;
  BlockPool blocks_;
  std::deque<Slot> under_way_;  // in the order of the file
  int pending_ = 0;             // with the kernel
  Status status_;
  const int forks_ = ForkSafeMutex::forks();
};

}  // namespace

StatusOr<std::unique_ptr<ObjectStream>> StreamByRing(std::shared_ptr<const LocalFile> file,
                                                     std::int64_t alignment, StreamRange range,
                                                     const StreamOptions& options) {
  AIT_ASSIGN_OR_RETURN(FileDescriptor fd, file->OpenAgain(O_DIRECT));
  AIT_ASSIGN_OR_RETURN(std::unique_ptr<IoRing> ring,
                       IoRing::Open(options.depth + 1, IoRing::Threads::kMany));
  return std::make_unique<RingStream>(std::move(file), std::move(fd), std::move(ring), alignment,
                                      range, options);
}

}  // namespace ait::inline v0::internal

// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "ait/memory/fork_safe_mutex.h"
#include "data/storage/block_pool_internal.h"
#include "data/storage/read_stream_internal.h"
#include "data/storage/uri_internal.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::int64_t kMaxBlockBytes = std::int64_t{1} << 30;
constexpr int kMaxDepth = 1024;
constexpr std::size_t kBlockAlignment = 4096;

// Reads one block after the other, in whatever thread asks.
class BlockReader {
 public:
  BlockReader(const StoredObject& object, StreamRange range, const StreamOptions& options,
              std::shared_ptr<const void> owner)
      : owner_(std::move(owner)),
        object_(object),
        at_(range.begin),
        end_(range.end),
        pool_(options.memory, static_cast<std::size_t>(options.block_bytes), kBlockAlignment) {}

  StatusOr<ByteView> Next() {
    if (at_ == end_) return ByteView();
    AIT_ASSIGN_OR_RETURN(std::shared_ptr<HostBuffer> block, pool_.Take());
    const auto length = std::min(static_cast<std::int64_t>(block->size_bytes()), end_ - at_);
    const std::span<std::byte> out = block->bytes().first(static_cast<std::size_t>(length));
    AIT_RETURN_IF_ERROR(object_.ReadAt(at_, out));
    at_ += length;
    return ByteView(out, std::move(block));
  }

 private:
  const std::shared_ptr<const void> owner_;
  const StoredObject& object_;
  std::int64_t at_;
  const std::int64_t end_;
  BlockPool pool_;
};

class CallerStream final : public ObjectStream {
 public:
  CallerStream(const StoredObject& object, StreamRange range, const StreamOptions& options,
               std::shared_ptr<const void> owner)
      : reader_(object, range, options, std::move(owner)) {}

  StatusOr<ByteView> Next() override {
    if (!status_.ok()) return status_;
    StatusOr<ByteView> block = reader_.Next();
    status_ = block.status();
    return block;
  }

 private:
  BlockReader reader_;
  Status status_;
};

class ThreadStream final : public ObjectStream {
 public:
  ThreadStream(const StoredObject& object, StreamRange range, const StreamOptions& options,
               std::shared_ptr<const void> owner)
      : reader_(object, range, options, std::move(owner)),
        depth_(static_cast<std::size_t>(options.depth)) {
    thread_ = std::thread([this] { Run(); });
  }

  ~ThreadStream() override {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  StatusOr<ByteView> Next() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !ready_.empty(); });
    if (IsLast(ready_.front())) return ready_.front();
    StatusOr<ByteView> block = std::move(ready_.front());
    ready_.pop_front();
    changed_.notify_all();
    return block;
  }

 private:
  static bool IsLast(const StatusOr<ByteView>& block) { return !block.ok() || block->is_empty(); }

  void Run() {
    bool is_last = false;
    while (!is_last) {
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return stopping_ || ready_.size() < depth_; });
        if (stopping_) return;
      }
      StatusOr<ByteView> block = reader_.Next();
      is_last = IsLast(block);
      {
        const std::scoped_lock lock(mutex_);
        ready_.push_back(std::move(block));
      }
      changed_.notify_all();
    }
  }

  BlockReader reader_;  // of the thread
  const std::size_t depth_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<StatusOr<ByteView>> ready_;
  bool stopping_ = false;
  std::thread thread_;
};

class ForkedStream final : public ObjectStream {
 public:
  ForkedStream(std::unique_ptr<ObjectStream> stream, std::string url)
      : stream_(std::move(stream)), url_(std::move(url)) {}
  ~ForkedStream() override {
    if (forks_ != ForkSafeMutex::forks()) static_cast<void>(stream_.release());
  }

  StatusOr<ByteView> Next() override {
    if (forks_ == ForkSafeMutex::forks()) return stream_->Next();
    return FailedPreconditionError("a stream of ", WithoutSecrets(url_),
                                   " does not go on in a forked child; open another");
  }

 private:
  std::unique_ptr<ObjectStream> stream_;
  const std::string url_;
  const int forks_ = ForkSafeMutex::forks();
};

}  // namespace

std::unique_ptr<ObjectStream> OfThisProcess(std::unique_ptr<ObjectStream> stream, std::string url) {
  return std::make_unique<ForkedStream>(std::move(stream), std::move(url));
}

StatusOr<StreamRange> CheckedRange(const ObjectInfo& info, const StreamOptions& options) {
  if (options.block_bytes < 1 || options.block_bytes > kMaxBlockBytes) {
    return InvalidArgumentError("blocks of ", options.block_bytes, " bytes; 1 to ", kMaxBlockBytes,
                                " are possible");
  }
  if (options.depth < 0 || options.depth > kMaxDepth) {
    return InvalidArgumentError(options.depth, " blocks ahead; 0 to ", kMaxDepth, " are possible");
  }
  if (options.length_bytes < 0) {
    return InvalidArgumentError("a stream of ", options.length_bytes, " bytes");
  }
  AIT_RETURN_IF_ERROR(CheckRange(info, options.offset_bytes, 0));
  const std::int64_t length =
      std::min(options.length_bytes, info.size_bytes - options.offset_bytes);
  return StreamRange{options.offset_bytes, options.offset_bytes + length};
}

StatusOr<std::unique_ptr<ObjectStream>> StreamByReads(const StoredObject& object,
                                                      const StreamOptions& options,
                                                      std::shared_ptr<const void> owner) try {
  AIT_ASSIGN_OR_RETURN(const StreamRange range, CheckedRange(object.info(), options));
  if (options.depth == 0) {
    return std::make_unique<CallerStream>(object, range, options, std::move(owner));
  }
  return OfThisProcess(std::make_unique<ThreadStream>(object, range, options, std::move(owner)),
                       object.info().url);
} catch (const std::system_error& error) {
  return ResourceExhaustedError("no thread to read ", object.info().url, " ahead: ", error.what());
}

}  // namespace ait::inline v0::internal

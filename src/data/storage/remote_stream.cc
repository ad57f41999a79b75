// SPDX-License-Identifier: Apache-2.0
#include "data/storage/remote_stream_internal.h"

#include <algorithm>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

#include "data/storage/block_pool_internal.h"
#include "data/storage/range_call_internal.h"
#include "data/storage/read_stream_internal.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::size_t kBlockAlignment = 4096;

class RemoteStream final : public ObjectStream {
 public:
  RemoteStream(std::shared_ptr<const RemoteSource> source, std::shared_ptr<HttpSession> session,
               StreamRange range, const StreamOptions& options)
      : source_(std::move(source)),
        session_(std::move(session)),
        at_(range.begin),
        end_(range.end),
        depth_(static_cast<std::size_t>(options.depth)),
        pool_(options.memory, static_cast<std::size_t>(options.block_bytes), kBlockAlignment) {
    thread_ = std::thread([this] { Push(Run()); });
  }

  ~RemoteStream() override {
    {
      const std::scoped_lock lock(mutex_);
      stopping_ = true;
    }
    session_->Interrupt();
    changed_.notify_all();
    thread_.join();
  }

  StatusOr<ByteView> Next() override {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !ready_.empty(); });
    if (!ready_.front().ok() || ready_.front()->is_empty()) return ready_.front();
    StatusOr<ByteView> block = std::move(ready_.front());
    ready_.pop_front();
    changed_.notify_all();
    return block;
  }

 private:
  // A block that was asked for.
  struct Asked {
    std::shared_ptr<HostBuffer> block;
    std::span<std::byte> bytes;
    RangeCall call;
    bool has_ended = false;
  };

  // Until the end, an error, or the stream's end; the result is what follows the last block.
  StatusOr<ByteView> Run() {
    std::deque<Asked> asked;
    const std::shared_ptr<void> no_longer(nullptr, [this](void*) { session_->Clear(); });
    while (true) {
      AIT_RETURN_IF_ERROR(AskForMore(asked));
      if (asked.empty()) {
        if (at_ == end_) return ByteView();
        if (!AwaitRoom()) return CancelledError("the stream was left");
        continue;
      }
      const HttpCall* ended = session_->RunUntilOneEnds();
      if (ended == nullptr) return CancelledError("the stream was left");
      for (Asked& each : asked) each.has_ended = each.has_ended || &each.call == ended;
      for (; !asked.empty() && asked.front().has_ended; asked.pop_front()) {
        AIT_RETURN_IF_ERROR(asked.front().call.status());
        Push(ByteView(asked.front().bytes, std::move(asked.front().block)));
      }
    }
  }

  Status AskForMore(std::deque<Asked>& asked) {
    while (at_ < end_ && asked.size() + ReadyCount() < depth_) {
      AIT_ASSIGN_OR_RETURN(std::shared_ptr<HostBuffer> block, pool_.Take());
      const auto length = std::min(static_cast<std::int64_t>(pool_.block_bytes()), end_ - at_);
      const auto bytes = block->bytes().first(static_cast<std::size_t>(length));
      asked.push_back(
          {std::move(block), bytes,
           RangeCall(source_->client->options(), *source_->address, source_->version, at_, bytes)});
      session_->Add(&asked.back().call);
      at_ += length;
    }
    return OkStatus();
  }

  std::size_t ReadyCount() {
    const std::scoped_lock lock(mutex_);
    return ready_.size();
  }
  bool AwaitRoom() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stopping_ || ready_.size() < depth_; });
    return !stopping_;
  }
  void Push(StatusOr<ByteView> block) {
    {
      const std::scoped_lock lock(mutex_);
      ready_.push_back(std::move(block));
    }
    changed_.notify_all();
  }

  const std::shared_ptr<const RemoteSource> source_;
  const std::shared_ptr<HttpSession> session_;
  std::int64_t at_;  // of the thread, as are the pool and what it asked for
  const std::int64_t end_;
  const std::size_t depth_;
  BlockPool pool_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<StatusOr<ByteView>> ready_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace

StatusOr<std::unique_ptr<ObjectStream>> StreamRemote(std::shared_ptr<const RemoteSource> source,
                                                     const ObjectInfo& info,
                                                     const StreamOptions& options) try {
  AIT_ASSIGN_OR_RETURN(const StreamRange range, CheckedRange(info, options));
  AIT_ASSIGN_OR_RETURN(std::shared_ptr<HttpSession> session, source->client->Borrow());
  return OfThisProcess(
      std::make_unique<RemoteStream>(std::move(source), std::move(session), range, options),
      info.url);
} catch (const std::system_error& error) {
  return ResourceExhaustedError("no thread to read ", info.url, " ahead: ", error.what());
}

}  // namespace ait::inline v0::internal

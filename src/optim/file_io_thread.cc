// SPDX-License-Identifier: Apache-2.0
#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/signal_mask.h"
#include "optim/file_io.h"

namespace ait::inline v0::internal {
namespace {

class FileThread final : public FileIo {
 public:
  FileThread(int fd, std::unique_ptr<FileCalls> calls) : fd_(fd), calls_(std::move(calls)) {
    const BlockedSignals blocked;
    thread_ = std::thread([this] { Run(); });
    pthread_setname_np(thread_.native_handle(), "ait-file");
  }

  ~FileThread() override {
    {
      const std::lock_guard lock(mutex_);
      ending_ = true;
    }
    to_do_.notify_one();
    thread_.join();
  }

  Status Start(FileRequest& request) override {
    request.moved = request.repeats = request.error = 0;
    request.done = false;
    ++under_way_;
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(&request);
    }
    to_do_.notify_one();
    return OkStatus();
  }

  Status Poll() override {
    const std::lock_guard lock(mutex_);
    Collect();
    return OkStatus();
  }

  Status WaitForAny() override {
    if (under_way_ == 0) return OkStatus();
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return !finished_.empty(); });
    Collect();
    return OkStatus();
  }

  std::string_view name() const override { return "thread"; }

 private:
  void Collect() {
    for (FileRequest* request : finished_) request->done = true;
    under_way_ -= static_cast<int>(finished_.size());
    finished_.clear();
  }

  void Run() {
    std::unique_lock lock(mutex_);
    while (true) {
      to_do_.wait(lock, [this] { return ending_ || !queue_.empty(); });
      if (queue_.empty()) return;
      FileRequest* const request = queue_.front();
      queue_.pop_front();
      lock.unlock();
      Move(*request);
      lock.lock();
      finished_.push_back(request);
      ended_.notify_one();
    }
  }

  void Move(FileRequest& request) {
    std::int64_t result = 0;
    do {
      std::byte* const data = request.data + request.moved;
      const std::int64_t bytes = request.bytes - request.moved;
      const std::int64_t offset = request.offset + request.moved;
      result = request.kind == FileRequest::Kind::kRead ? calls_->Read(fd_, data, bytes, offset)
                                                        : calls_->Write(fd_, data, bytes, offset);
    } while (Advance(request, result));
  }

  const int fd_;
  const std::unique_ptr<FileCalls> calls_;
  int under_way_ = 0;  // of the caller
  std::mutex mutex_;
  std::condition_variable to_do_;
  std::condition_variable ended_;
  std::deque<FileRequest*> queue_;
  std::vector<FileRequest*> finished_;
  bool ending_ = false;
  std::thread thread_;
};

}  // namespace

bool Advance(FileRequest& request, std::int64_t result) {
  // The kernel also gives up what a thread that ended has asked for, and what it has no room for.
  if (result == -EINTR || result == -EAGAIN || result == -ECANCELED) {
    constexpr int kMostRepeats = 10'000;
    if (++request.repeats < kMostRepeats) return true;
  }
  if (result < 0) {
    request.error = static_cast<int>(-result);
    return false;
  }
  if (result == 0) {
    request.error = request.kind == FileRequest::Kind::kRead ? FileRequest::kFileEnds : EIO;
    return false;
  }
  request.repeats = 0;
  request.moved += result;
  return request.moved < request.bytes;
}

std::int64_t FileCalls::Read(int fd, void* data, std::int64_t bytes, std::int64_t offset) {
  const ssize_t moved = ::pread(fd, data, static_cast<std::size_t>(bytes), offset);
  return moved < 0 ? -errno : moved;
}

std::int64_t FileCalls::Write(int fd, const void* data, std::int64_t bytes, std::int64_t offset) {
  const ssize_t moved = ::pwrite(fd, data, static_cast<std::size_t>(bytes), offset);
  return moved < 0 ? -errno : moved;
}

std::unique_ptr<FileIo> OpenFileThread(int fd, std::unique_ptr<FileCalls> calls) {
  if (calls == nullptr) calls = std::make_unique<FileCalls>();
  return std::make_unique<FileThread>(fd, std::move(calls));
}

}  // namespace ait::inline v0::internal

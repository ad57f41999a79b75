// SPDX-License-Identifier: Apache-2.0
#include <sys/uio.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

#include "data/storage/local_engines_internal.h"

namespace ait::inline v0::internal {
namespace {

enum class Tried { kDone, kMissing, kCannotTry };

// Reads what the page cache holds, without waiting for a disk.
Tried TryCached(int fd, const ObjectRead& read) {
  const iovec part = {read.out.data(), read.out.size()};
  const ssize_t count = ::preadv2(fd, &part, 1, read.offset_bytes, RWF_NOWAIT);
  if (count == static_cast<ssize_t>(read.out.size())) return Tried::kDone;
  const bool is_refused =
      count < 0 && (errno == EOPNOTSUPP || errno == ENOSYS || errno == EINVAL || errno == EPERM);
  return is_refused ? Tried::kCannotTry : Tried::kMissing;
}

// Reads that several threads work off. A thread that comes late finds nothing left to do, and
// touches neither the reads nor the file.
class Work {
 public:
  Work(const LocalFile& file, std::vector<ObjectRead*> reads)
      : file_(file), reads_(std::move(reads)) {}

  void Run() {
    std::size_t done = 0;
    for (std::size_t at = next_++; at < reads_.size(); at = next_++) {
      ObjectRead& read = *reads_[at];
      read.status = file_.ReadUnchecked(read.offset_bytes, read.out);
      ++done;
    }
    if (done == 0) return;
    {
      const std::lock_guard lock(mutex_);
      done_ += done;
    }
    all_done_.notify_all();
  }

  void Wait() {
    std::unique_lock lock(mutex_);
    all_done_.wait(lock, [this] { return done_ == reads_.size(); });
  }

 private:
  const LocalFile& file_;
  const std::vector<ObjectRead*> reads_;
  std::atomic<std::size_t> next_ = 0;
  std::mutex mutex_;
  std::condition_variable all_done_;
  std::size_t done_ = 0;
};

}  // namespace

void ReadTogether(const LocalFile& file, ReadPool* pool, std::span<ObjectRead> reads) {
  const bool has_help = pool != nullptr && reads.size() > 1;
  bool can_try = has_help;
  std::vector<ObjectRead*> missing;
  for (ObjectRead& read : reads) {
    read.status = OkStatus();
    if (read.out.empty()) continue;
    const Tried tried = can_try ? TryCached(file.fd(), read) : Tried::kCannotTry;
    if (tried == Tried::kDone) continue;
    can_try = can_try && tried != Tried::kCannotTry;
    if (has_help) {
      missing.push_back(&read);
    } else {
      read.status = file.ReadUnchecked(read.offset_bytes, read.out);
    }
  }
  if (missing.empty()) return;
  const std::size_t helpers = std::min(pool->limit(), missing.size() - 1);
  const auto work = std::make_shared<Work>(file, std::move(missing));
  for (std::size_t i = 0; i < helpers; ++i) {
    if (!pool->Submit([work] { work->Run(); }).ok()) break;
  }
  work->Run();
  work->Wait();
}

}  // namespace ait::inline v0::internal

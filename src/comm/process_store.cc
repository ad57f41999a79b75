// SPDX-License-Identifier: Apache-2.0
#include <charconv>
#include <condition_variable>
#include <map>
#include <mutex>

#include "ait/comm/store.h"

namespace ait::inline v0 {
namespace {

class ProcessStore final : public Store {
 public:
  Status Set(std::string_view key, std::string_view value) override {
    std::lock_guard lock(mutex_);
    values_.insert_or_assign(std::string(key), std::string(value));
    changed_.notify_all();
    return OkStatus();
  }

  StatusOr<std::string> Get(std::string_view key, Deadline deadline) override {
    std::unique_lock lock(mutex_);
    auto it = values_.end();
    const auto is_set = [&] { return (it = values_.find(key)) != values_.end(); };
    if (deadline.is_infinite()) {
      changed_.wait(lock, is_set);
    } else if (!changed_.wait_until(lock, deadline.time(), is_set)) {
      return DeadlineExceededError("store: nobody set key \"", key, "\" before the deadline");
    }
    return it->second;
  }

  StatusOr<std::int64_t> Add(std::string_view key, std::int64_t amount) override {
    std::lock_guard lock(mutex_);
    std::int64_t value = 0;
    const auto it = values_.find(key);
    if (it != values_.end()) {
      const char* end = it->second.data() + it->second.size();
      const auto [stop, error] = std::from_chars(it->second.data(), end, value);
      if (error != std::errc() || stop != end) {
        return FailedPreconditionError("store: key \"", key, "\" holds \"", it->second,
                                       "\", which is not an integer to add to");
      }
    }
    std::int64_t sum = 0;
    if (__builtin_add_overflow(value, amount, &sum)) {
      return OutOfRangeError("store: ", value, " + ", amount, " at key \"", key,
                             "\" does not fit 64 bits");
    }
    values_.insert_or_assign(std::string(key), std::to_string(sum));
    changed_.notify_all();
    return sum;
  }

  StatusOr<bool> Contains(std::string_view key) override {
    std::lock_guard lock(mutex_);
    return values_.find(key) != values_.end();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string, std::less<>> values_;
};

}  // namespace

std::shared_ptr<Store> MakeProcessStore() { return std::make_shared<ProcessStore>(); }

}  // namespace ait::inline v0

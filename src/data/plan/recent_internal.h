// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_PLAN_RECENT_INTERNAL_H_
#define AIT_DATA_PLAN_RECENT_INTERNAL_H_

// The last few values of a function that is dear: tables of an epoch, windows of an order.

#include <algorithm>
#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace ait::inline v0 {
namespace internal {

/// **Thread-safety.** Any thread; one that wants a value that another is making waits for it.
template <typename Key, typename Value>
class Recent {
 public:
  explicit Recent(std::size_t capacity) : capacity_(capacity) {}

  /// The value at `key`, made by `make()` if it is not there.
  template <typename Make>
  std::shared_ptr<const Value> Get(const Key& key, Make make) {
    const std::lock_guard lock(mutex_);
    auto found =
        std::find_if(values_.begin(), values_.end(), [&](const auto& v) { return v.first == key; });
    if (found == values_.end()) {
      auto value = std::make_shared<const Value>(make());
      if (values_.size() == capacity_) values_.pop_back();
      values_.emplace_back(key, std::move(value));
      found = values_.end() - 1;
    }
    std::rotate(values_.begin(), found, found + 1);
    return values_.front().second;
  }

 private:
  const std::size_t capacity_;
  std::mutex mutex_;
  std::vector<std::pair<Key, std::shared_ptr<const Value>>> values_;  // the last used first
};

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_PLAN_RECENT_INTERNAL_H_

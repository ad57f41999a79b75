// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_KEY_SET_INTERNAL_H_
#define AIT_DATA_FORMAT_KEY_SET_INTERNAL_H_

// The keys that a shard had so far, by 64-bit hashes: two different keys of one shard are taken for
// one with a chance of n^2 / 2^65, 3e-8 for a million samples.

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string_view>
#include <utility>
#include <vector>

namespace ait::inline v0 {
namespace internal {

class KeySet {
 public:
  /// False if it was there.
  bool Insert(std::string_view key) {
    std::uint64_t hash = std::hash<std::string_view>()(key);
    if (hash == 0) hash = 1;  // 0 is a free place
    if (2 * (count_ + 1) > places_.size()) Grow();
    return Place(hash);
  }

 private:
  bool Place(std::uint64_t hash) {
    const std::size_t mask = places_.size() - 1;
    for (std::size_t i = hash & mask;; i = (i + 1) & mask) {
      if (places_[i] == hash) return false;
      if (places_[i] == 0) {
        places_[i] = hash;
        ++count_;
        return true;
      }
    }
  }

  void Grow() {
    const std::vector<std::uint64_t> old = std::exchange(
        places_, std::vector<std::uint64_t>(places_.empty() ? 64 : 4 * places_.size()));
    count_ = 0;
    for (const std::uint64_t hash : old) {
      if (hash != 0) Place(hash);
    }
  }

  std::vector<std::uint64_t> places_;  // a power of two of them, at most half of them taken
  std::size_t count_ = 0;
};

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_KEY_SET_INTERNAL_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TENSOR_BLOCK_TABLE_INTERNAL_H_
#define AIT_TENSOR_BLOCK_TABLE_INTERNAL_H_

// What a deleter that is given nothing but an address must know of it: a table from addresses to
// sizes and owners, divided into shards that are locked for a few instructions. A header in front of
// each block would cost a page of every block that fills its pages, and would touch that page on the
// thread that allocates instead of the one that computes.

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "memory/fork_locks_internal.h"
#include "memory/spin_lock_internal.h"

namespace ait::inline v0::internal {

template <typename Owner>
class BlockTable final : public ForkLocks {
 public:
  struct Entry {
    void* block = nullptr;  // nullptr: a free place
    std::size_t bytes = 0;
    Owner* owner = nullptr;
  };

  BlockTable() { Enter(); }
  ~BlockTable() override { Leave(); }

  void Insert(const Entry& entry) {
    const std::uint64_t hash = Hash(entry.block);
    Shard& shard = ShardOf(hash);
    const std::lock_guard lock(shard.lock);
    if (2 * (shard.count + 1) > shard.entries.size()) Enlarge(shard);
    Place(shard, entry);
    ++shard.count;
  }

  /// Takes the entry of `block` out; nullopt if there is none.
  std::optional<Entry> Remove(void* block) {
    const std::uint64_t hash = Hash(block);
    Shard& shard = ShardOf(hash);
    const std::lock_guard lock(shard.lock);
    if (shard.count == 0) return std::nullopt;
    const std::size_t mask = shard.entries.size() - 1;
    std::size_t at = hash & mask;
    while (shard.entries[at].block != block) {
      if (shard.entries[at].block == nullptr) return std::nullopt;
      at = (at + 1) & mask;
    }
    const Entry found = shard.entries[at];
    // What follows moves up, unless it lies between the place it hashes to and here (Knuth, The Art of
    // Computer Programming, vol. 3, section 6.4, algorithm R).
    for (std::size_t next = (at + 1) & mask; shard.entries[next].block != nullptr;
         next = (next + 1) & mask) {
      const std::size_t home = Hash(shard.entries[next].block) & mask;
      if (((next - home) & mask) < ((next - at) & mask)) continue;
      shard.entries[at] = shard.entries[next];
      at = next;
    }
    shard.entries[at] = {};
    --shard.count;
    return found;
  }

  void LockAll() override {
    for (Shard& shard : shards_) shard.lock.lock();
  }
  void UnlockAll() override {
    for (Shard& shard : shards_) shard.lock.unlock();
  }

 private:
  struct alignas(64) Shard {
    SpinLock lock;
    std::size_t count = 0;
    std::vector<Entry> entries;  // open addressing; a power of two, at most half full
  };

  static std::uint64_t Hash(const void* block) {  // blocks start on 128 bytes
    return std::rotr((reinterpret_cast<std::uintptr_t>(block) >> 7) * 0x9e3779b97f4a7c15, 32);
  }
  Shard& ShardOf(std::uint64_t hash) { return shards_[(hash >> 40) % shards_.size()]; }

  static void Place(Shard& shard, const Entry& entry) {
    const std::size_t mask = shard.entries.size() - 1;
    std::size_t at = Hash(entry.block) & mask;
    while (shard.entries[at].block != nullptr) at = (at + 1) & mask;
    shard.entries[at] = entry;
  }
  static void Enlarge(Shard& shard) {
    std::vector<Entry> old(shard.entries.empty() ? 64 : 2 * shard.entries.size());
    old.swap(shard.entries);
    for (const Entry& entry : old) {
      if (entry.block != nullptr) Place(shard, entry);
    }
  }

  std::array<Shard, 32> shards_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_TENSOR_BLOCK_TABLE_INTERNAL_H_

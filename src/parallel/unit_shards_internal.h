// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_UNIT_SHARDS_INTERNAL_H_
#define AIT_PARALLEL_UNIT_SHARDS_INTERNAL_H_

// The parameters of units: the slices that this rank keeps, and whole units for as long as they are
// asked for. Knows nothing of tensors.
//
// Where the ranks reach each other's memory, a unit is gathered by copies from the peers' slices: no
// peer takes part, so ranks may gather what they like when they like, and a thread does it ahead.
// Elsewhere it is gathered by all-gathers on a communicator of its own, and all ranks gather the
// same units in the same order.
//
// Whoever changes shards sees to it that no rank is gathering: a collective before and after.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ait/base/clock.h"
#include "ait/base/status.h"
#include "ait/comm/communicator.h"
#include "ait/memory/buffer.h"
#include "parallel/copy_job_internal.h"

namespace ait::inline v0::internal {

/// A run of elements of one unit, cut into a slice for each rank.
struct ShardedBucket {
  int unit = 0;
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> slice_counts;  // by rank; multiples of 128 bytes
};

/// What gathering has cost since the last look.
struct GatherCounters {
  std::int64_t gathers = 0;
  std::int64_t bytes = 0;  // of the whole units
  Duration exposed{};      // that a caller waited or copied
};

struct UnitShardsOptions {
  MemoryHandle memory;         // of the shards; that of the communicator is reached by the peers
  MemoryHandle whole_memory;   // of whole units
  int prefetch = 0;            // units that may be gathered beside the one in use
  OperationOptions operation;  // time-out
};

/// **Thread-safety.** One thread at a time.
class UnitShards {
 public:
  /// **Collective. Blocks.** `units` are their names. Shards are unspecified at first: `Store`.
  static StatusOr<std::unique_ptr<UnitShards>> Create(std::shared_ptr<Communicator> communicator,
                                                      std::vector<std::string> units,
                                                      std::vector<ShardedBucket> buckets,
                                                      UnitShardsOptions options);
  ~UnitShards();

  /// This rank's slice.
  Buffer shard(int bucket) const;
  /// Where a bucket begins in the block of its unit, in bytes; they follow one after the other.
  std::int64_t begin(int bucket) const { return buckets_[static_cast<std::size_t>(bucket)].begin; }
  std::int64_t bytes(int unit) const { return units_[static_cast<std::size_t>(unit)].bytes; }
  const std::string& name(int unit) const { return units_[static_cast<std::size_t>(unit)].name; }

  /// Begins to gather a unit, if that has not begun. **Errors.** ResourceExhausted: no memory.
  Status Start(int unit);
  /// **Blocks.** The whole unit, until `Drop`.
  StatusOr<std::byte*> Finish(int unit);
  /// A block for the unit without gathering it: it is to be filled.
  StatusOr<std::byte*> Take(int unit);
  /// Writes this rank's slices of the block into its shard.
  void Store(int unit);
  /// Gives the block back, whole or not.
  void Drop(int unit);
  /// Null if there is none, or it has no bytes.
  std::byte* block(int unit) const {
    return const_cast<std::byte*>(units_[static_cast<std::size_t>(unit)].block.data());
  }
  bool has_block(int unit) const { return block(unit) != nullptr; }

  /// **Collective. Blocks.** Whether the ranks have gathered the same since the last look, where
  /// that matters. **Errors.** InvalidArgument, on every rank: the first that differs.
  Status CheckOrder();

  /// Whether ranks gather each for itself.
  bool is_direct() const { return !addresses_.empty(); }
  Communicator& communicator() const { return *communicator_; }

  GatherCounters TakeCounters();
  std::int64_t shard_bytes() const { return shard_bytes_; }
  /// Bytes of blocks, in use or kept for the next; and the most there were.
  std::int64_t block_bytes() const { return block_bytes_; }
  std::int64_t peak_block_bytes() const { return peak_block_bytes_; }

 private:
  struct Bucket {
    ShardedBucket of;
    std::int64_t begin = 0;                 // in the block
    std::vector<std::int64_t> shard_begin;  // by rank, in its shards; bytes
  };
  struct Unit {
    std::string name;
    std::vector<int> buckets;
    std::int64_t bytes = 0;
    HostBuffer block;
    std::shared_ptr<CopyJob> job;  // while it is gathered
    std::vector<Work> works;
    bool is_whole = false;
  };
  UnitShards() = default;
  Unit& unit_at(int unit) { return units_[static_cast<std::size_t>(unit)]; }
  StatusOr<HostBuffer> TakeBlock(std::int64_t bytes);
  void GiveBlock(HostBuffer block);
  void StartCopies(Unit& unit);
  void StartCollectives(Unit& unit);
  Status DescribeDifference(std::vector<std::int64_t> order, std::int64_t longest);

  std::shared_ptr<Communicator> communicator_;
  UnitShardsOptions options_;
  std::vector<Unit> units_;
  std::vector<Bucket> buckets_;
  HostBuffer shards_;
  std::int64_t shard_bytes_ = 0;
  std::vector<void*> addresses_;  // of the shards of all ranks; empty if they are out of reach
  std::vector<HostBuffer> spare_;
  std::int64_t block_bytes_ = 0;
  std::int64_t peak_block_bytes_ = 0;
  GatherCounters counters_;
  std::vector<std::int64_t> order_;     // units gathered by collectives
  std::unique_ptr<CopyThread> thread_;  // null: whoever needs a unit copies it
};

}  // namespace ait::inline v0::internal

#endif  // AIT_PARALLEL_UNIT_SHARDS_INTERNAL_H_

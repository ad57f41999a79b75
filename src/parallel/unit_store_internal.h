// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_UNIT_STORE_INTERNAL_H_
#define AIT_PARALLEL_UNIT_STORE_INTERNAL_H_

// The parameters of units (ZeRO-3): tensors that have data only while their unit is in use.
//
// A use begins with `Enter` and ends with `Leave`; uses nest. The first gathers the unit and lets
// the tensors see it, the last takes the data away. `Watch` makes uses of a backward: the nodes of
// the graph that a call has made enter before the first of them runs, and leave after the last.
//
// A unit that is left keeps its memory if it is expected to be the next again, as the last unit of
// forward is, or if nothing is expected; until another one is entered. Tensors see none of that.
//
// Functions of libtorch may throw, so callers go through CatchAsStatus.

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/status.h"
#include "ait/parallel/flat_layout.h"
#include "ait/parallel/named_tensor.h"
#include "parallel/swapped_storage_internal.h"
#include "parallel/unit_schedule_internal.h"
#include "parallel/unit_shards_internal.h"
#include "tensor/torch_internal.h"

namespace torch::autograd {
struct Node;
}

namespace ait::inline v0::internal {

class UnitStore;

/// What graphs hold: it outlives the store.
struct UnitTarget {
  UnitStore* store = nullptr;
  std::int64_t epoch = 0;  // uses of an earlier one have been ended for good
};

class UnitStore {
 public:
  /// Makes the bytes of a unit the same on all ranks.
  using Agree = std::function<Status(const Buffer& bytes, std::string label)>;

  /// **Collective. Blocks.** Moves the parameters of `layout` that belong to a unit, frozen ones
  /// too, into shards; `units` are the names. The tensors have no data afterwards. Without `agree`
  /// they are the same on all ranks already.
  static StatusOr<std::unique_ptr<UnitStore>> Create(std::shared_ptr<Communicator> communicator,
                                                     const NamedTensors& tensors,
                                                     const FlatLayout& layout,
                                                     std::vector<std::string> units,
                                                     const Agree& agree, UnitShardsOptions options);
  /// The tensors say that the engine has gone.
  ~UnitStore();
  UnitStore(const UnitStore&) = delete;
  UnitStore& operator=(const UnitStore&) = delete;

  /// Number of the unit; -1 if there is none of that name.
  int Find(std::string_view name) const;
  /// "blocks.0, blocks.1, …": for messages.
  std::string Names() const;

  /// **Blocks.** **Errors.** Those of gathering; the use has not begun then.
  Status Enter(int unit);
  /// Of a use that began in the epoch of `target()`: who may be older compares.
  void Leave(int unit) noexcept;
  bool in_use(int unit) const { return uses_[static_cast<std::size_t>(unit)] > 0; }

  /// Makes the nodes behind `results` that were created since `first_node` use the unit when they
  /// run.
  void Watch(int unit, std::span<const at::Tensor> results, std::uint64_t first_node);

  /// A micro-step begins: its order of units is recorded and foretold.
  void BeginMicroStep();
  /// The micro-step is over: nothing is gathered ahead, and nothing kept. Ends all uses, also those
  /// of graphs that were left in the middle and of calls that go on: a later `Leave` is not for them.
  void Release();
  /// **Collective. Blocks.** `Release`, after which shards may change behind a collective.
  /// **Errors.** As `UnitShards::CheckOrder`.
  Status Settle();
  /// Tells autograd that the parameters have changed.
  void BumpVersions();

  /// This rank's slice of a bucket of `layout.buckets()` that belongs to a unit.
  Buffer shard(int bucket) const {
    return shards_->shard(bucket_numbers_[static_cast<std::size_t>(bucket)]);
  }
  /// The whole bucket; its unit is in use.
  Buffer whole(int bucket) const;
  /// Takes up what was written to the parameters of a unit that is in use.
  void Store(int unit) { shards_->Store(unit); }
  int unit_count() const { return static_cast<int>(storages_.size()); }

  /// **Errors.** FailedPrecondition that names a parameter whose memory or shape has changed.
  Status CheckUnchanged() const;

  /// Bytes of frozen parameters, without padding: of all of them, and of this rank's slices.
  std::int64_t frozen_bytes() const { return frozen_bytes_; }
  std::int64_t own_frozen_bytes() const { return own_frozen_bytes_; }

  UnitShards& shards() { return *shards_; }
  const UnitShards& shards() const { return *shards_; }
  const UnitSchedule& schedule() const { return schedule_; }
  /// Uses in micro-steps that were not expected, since the last look.
  std::int64_t TakeSurprises();
  const std::shared_ptr<UnitTarget>& target() const { return target_; }

 private:
  struct Member {
    at::Tensor tensor;
    int parameter = 0;
    int unit = 0;
    std::int64_t offset = 0;  // elements, in the storage
  };
  UnitStore() = default;
  void AddMembers(const FlatLayout& laid_out, const NamedTensors& tensors,
                  const std::vector<int>& numbers);
  Status Move(int unit, const Agree& agree);
  void GatherAhead();

  const FlatLayout* layout_ = nullptr;
  std::vector<Member> members_;
  std::vector<SwappedStorage> storages_;  // by unit
  std::vector<std::string> gone_;         // by unit: what its tensors say after the store
  std::vector<int> uses_;                 // by unit
  std::vector<int> bucket_numbers_;       // by bucket of the layout: that of the shards, or -1
  std::unique_ptr<UnitShards> shards_;
  UnitSchedule schedule_;
  std::int64_t surprises_ = 0;  // of the micro-steps before this one
  std::shared_ptr<UnitTarget> target_ = std::make_shared<UnitTarget>();
  std::int64_t frozen_bytes_ = 0;
  std::int64_t own_frozen_bytes_ = 0;
  int prefetch_ = 0;
  int kept_ = -1;  // the unit that was left and keeps its memory
  bool in_micro_step_ = false;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_PARALLEL_UNIT_STORE_INTERNAL_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_SHM_GROUP_H_
#define AIT_COMM_SHM_GROUP_H_

// One rank's view of a group: the control block, the member blocks, and what can be said and asked
// through them. See shm_layout.h for the words.
//
// **Thread-safety.** One thread at a time, except `Note`, `Break` and `Leave`.

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/clock.h"
#include "ait/base/status.h"
#include "ait/comm/operation.h"
#include "comm/shm_fabric.h"
#include "comm/shm_layout.h"

namespace ait::inline v0::internal {

class ShmGroup {
 public:
  /// **Collective.** The group of all ranks of the fabric. The first round is the one after
  /// `start`, equal on all ranks.
  static StatusOr<std::shared_ptr<ShmGroup>> World(std::shared_ptr<ShmFabric> fabric, Store& store,
                                                   const std::string& key, Deadline deadline,
                                                   std::uint64_t start = 0);

  /// **Collective.** Over `members`, ranks of this group in the order of the new one.
  StatusOr<std::shared_ptr<ShmGroup>> Subgroup(std::span<const int> members, std::uint64_t id,
                                               Deadline deadline);

  /// **Collective.** Over the ranks that live; the same members on all of them.
  StatusOr<std::shared_ptr<ShmGroup>> Survivors(Deadline deadline);

  ShmGroup(const ShmGroup&) = delete;
  ~ShmGroup();

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Of a group that `Survivors` made: its members' ranks in the group before.
  const std::vector<int>& survived() const { return survived_; }
  const ShmFabric& fabric() const { return *fabric_; }
  const std::shared_ptr<ShmFabric>& shared_fabric() const { return fabric_; }
  std::uint64_t start() const { return start_; }
  ShmHeader& header() const { return *header_; }
  ShmLine& line(int rank) const { return lines_[rank]; }
  ShmLine& own() const { return lines_[rank_]; }
  ShmText& text(int rank) const { return texts_[rank]; }
  const ShmMemberLayout& member_layout() const { return layout_; }
  std::byte* member(int rank) const { return member_blocks_[static_cast<std::size_t>(rank)]; }
  /// Tables of `rank` in one of its two places: elements per rank, those sent and those received.
  std::span<std::int64_t> counts(int rank, int place) const;
  std::span<std::int64_t> receive_counts(int rank, int place) const;

  /// The bytes at `offset` of the arena of `rank`, a member; null if it has no such bytes.
  std::byte* At(int rank, std::uint64_t offset, std::size_t bytes) const {
    return fabric_->At(members_[static_cast<std::size_t>(rank)], offset, bytes);
  }
  bool IsDead(int rank) const { return fabric_->IsDead(members_[static_cast<std::size_t>(rank)]); }
  /// Whether `rank` has left the group or died.
  bool IsGone(int rank) const;

  /// Stores `value` so that all see it, and wakes those who sleep.
  void Publish(std::atomic<std::uint64_t>& word, std::uint64_t value) {
    word.store(value, std::memory_order_seq_cst);
    WakeSleepers();
  }
  void WakeSleepers();

  /// Sleeps until somebody publishes, at most `most`. `bell` is the value of header().bell read
  /// before what is waited for was looked at, `Doze` having been called before that.
  void BeginDoze() { header_->sleepers.fetch_add(1, std::memory_order_seq_cst); }
  void EndDoze() { header_->sleepers.fetch_sub(1, std::memory_order_seq_cst); }
  void Sleep(std::uint32_t bell, Duration most);

  /// Breaks the group, unless it is; the first reason counts.
  void Break(const Status& reason);
  bool broken() const { return header_->broken.load(std::memory_order_seq_cst) != 0; }
  /// The rank that broke it, and why. Need `broken()`.
  int breaker() const { return static_cast<int>(header_->broken.load()) - 1; }
  Status reason() const;

  /// What `rank` does or has done, for messages: "has finished barrier, sequence 3; …".
  std::string Describe(int rank) const;

  void Note(std::int64_t step, std::string_view phase);
  /// This rank touches nothing any more.
  void Leave();

 private:
  ShmGroup(std::shared_ptr<ShmFabric> fabric, std::vector<int> members, int rank);
  /// How the members of a new group hear of its control block; kForeign: there will be none.
  struct Meeting {
    std::function<Status(std::uint64_t offset)> offer;
    std::function<StatusOr<std::uint64_t>()> find;
    /// Why it is of no use to wait any longer.
    std::function<Status()> interrupted;
  };
  static StatusOr<std::shared_ptr<ShmGroup>> Make(std::shared_ptr<ShmFabric> fabric,
                                                  std::vector<int> members, int rank,
                                                  std::uint64_t start, const Meeting& meeting,
                                                  Deadline deadline);
  StatusOr<std::shared_ptr<ShmGroup>> MakeFrom(std::span<const int> members, std::uint64_t id,
                                               Deadline deadline, bool may_be_broken);
  void Attach(std::byte* control);
  Status AllocateMember();
  Status JoinAll(const Meeting& meeting, Deadline deadline);

  const std::shared_ptr<ShmFabric> fabric_;
  const std::vector<int> members_;  // ranks of the fabric
  const int rank_;
  const int size_;
  const ShmMemberLayout layout_;
  std::uint64_t start_ = 0;
  std::uint64_t survivor_calls_ = 0;
  std::vector<int> survived_;
  void* control_block_ = nullptr;  // owned by the first rank
  ShmHeader* header_ = nullptr;
  ShmLine* lines_ = nullptr;
  ShmText* texts_ = nullptr;
  std::int64_t* counts_ = nullptr;
  std::vector<std::byte*> member_blocks_;
  std::mutex break_mutex_;  // two threads of this rank may break the group
};

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_SHM_GROUP_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_SHM_COLLECTIVE_H_
#define AIT_COMM_SHM_COLLECTIVE_H_

// One collective of one rank as a state machine that never waits: whoever waits for it turns it.
//
// Where all buffers that peers must reach lie in arenas, an operation is one round: all arrive, each
// rank does its part straight on the buffers, all are done. Else it goes through the staging memory
// in chunks, a round or two each: a rank copies its chunk, all arrive, each takes what it needs. The
// staging memory has two halves that rounds use in turn, so one meeting a round is enough.

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ait/base/status.h"
#include "ait/comm/operation.h"
#include "comm/shm_group.h"

namespace ait::inline v0::internal {

/// Points of an operation at which a test can stop a rank.
enum class ShmPhase { kArriving, kArrived, kMet, kRan, kDone };

class ShmCollective {
 public:
  enum class Progress {
    kWaiting,  // for peers; nothing was done
    kMoved,
    kDone,
    kMismatch,  // the ranks mean different operations: describe and compare
  };

  explicit ShmCollective(ShmGroup& group);

  /// Arrives with `operation`, which stays where it is until the end.
  void Begin(const Operation& operation);
  /// Does what can be done now. After the group has broken, only what touches nothing of a peer.
  Progress Advance();

  /// All ranks have come: from here on peers may touch the buffers of an operation in the arenas.
  bool has_met() const { return state_ == State::kFinishing || !first_; }
  /// Ranks that have not come to where this one waits.
  std::vector<int> Missing() const;
  /// Whether no peer touches the buffers any more, once the group has broken.
  bool IsQuiet() const;

  /// The error of a mismatch. `ready` is false while a peer has not yet described its operation.
  Status Compare(bool& ready) const;
  void DescribeOwn();

  /// For a test and a benchmark: whether signatures are compared.
  void set_check_signatures(bool check) { check_signatures_ = check; }
  /// For a test: is called at every phase of every operation.
  void set_phase_hook(std::function<void(ShmPhase)> hook) { hook_ = std::move(hook); }

 private:
  enum class State { kArriving, kFinishing };

  void At(ShmPhase phase) {
    if (hook_) [[unlikely]]
      hook_(phase);
  }
  void Arrive();
  bool HasMet();
  Progress Met();
  Progress MetFirst();
  void RunDirect();
  void ReduceDirect();
  void PlanStaged();
  void Stage();
  void Take();
  void StageParts(std::span<const std::int64_t> counts);
  std::byte* Slot(int rank) const;
  std::byte* Result(int rank) const;
  std::int64_t LargestCount(std::span<const std::int64_t> counts, int except) const;
  // Elements [k * chunk_, …) of a part of `count` elements, cut at its end.
  struct Piece {
    std::int64_t begin;
    std::int64_t length;
  };
  Piece PieceOf(std::int64_t count) const;
  Piece SliceOf(Piece piece, int rank) const;

  ShmGroup& group_;
  const int rank_;
  const int size_;
  const Operation* operation_ = nullptr;
  std::uint64_t round_;
  int place_ = 0;
  State state_ = State::kArriving;
  bool first_ = true;       // the round in which signatures are compared
  bool is_direct_ = false;  // this operation of all ranks
  bool check_signatures_ = true;
  std::function<void(ShmPhase)> hook_;
  int next_ = 0;  // the first peer that is not known to have come
  // Of an operation that is staged.
  bool in_slices_ = false;  // an all-reduce in two rounds a chunk
  bool taking_results_ = false;
  std::int64_t chunk_ = 0;  // elements of a part that are staged at a time
  std::int64_t chunks_ = 0;
  std::int64_t at_ = 0;  // the chunk
  std::vector<std::int64_t> offsets_;
  std::vector<std::int64_t> all_counts_;  // all-to-all: what rank i sends to rank j
  std::vector<const void*> inputs_;
  std::vector<void*> outputs_;
  std::vector<Operation> views_;  // of the peers, with addresses of this process
  std::vector<const Operation*> all_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_SHM_COLLECTIVE_H_

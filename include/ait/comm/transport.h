// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_TRANSPORT_H_
#define AIT_COMM_TRANSPORT_H_

// `Transport`: what carries operations between the ranks of one group. Implement it to add an
// engine.
//
// A transport gets operations that `Communicator` has checked: counts fit, the root exists, dtypes
// agree within the rank. It runs the collectives of one rank in the order they were started, and
// promises:
//
//   - sums are made in rank order by the owner of a slice, so every rank gets the same bits;
//   - every operation ends soon after its deadline, with DeadlineExceeded naming the ranks that are
//     missing, or earlier with Unavailable naming a rank that died;
//   - after one collective has failed, the group is broken: later ones fail at once with Aborted
//     and the first reason.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/operation.h"
#include "ait/comm/work.h"
#include "ait/memory/resource.h"

namespace ait::inline v0 {

/// One rank's end of a group. **Thread-safety.** `Start` and `Subgroup` are called by one thread at
/// a time; `Abort` from any thread.
class Transport {
 public:
  /// Ends what is in flight (Aborted) and stops all threads of this end. Does not wait for peers.
  virtual ~Transport() = default;

  /// The engine: "threads", "gloo", "shared-memory".
  virtual std::string_view name() const = 0;

  /// This end's place in the group.
  virtual Rank rank() const = 0;
  virtual WorldSize size() const = 0;

  /// Begins `operation` and returns at once.
  virtual Work Start(Operation operation) = 0;

  /// **Collective.** Over the members: makes the group of `members` (ranks of this group, in the
  /// order of their new ranks; this rank is one of them). `id` is the same on all members and
  /// unique to the call.
  virtual StatusOr<std::unique_ptr<Transport>> Subgroup(std::span<const Rank> members,
                                                        std::uint64_t id, Deadline deadline) = 0;

  /// **Collective.** The part of a rank of no group in a `Subgroup` of others: engines that split a
  /// group with all of its ranks need it. `id` is as there, but for the first member.
  virtual Status StandAside(std::uint64_t id, Deadline deadline) {
    static_cast<void>(id);
    static_cast<void>(deadline);
    return OkStatus();
  }

  /// True if also a group of one gives its operations to the transport: where the host cannot touch
  /// the memory that they move.
  virtual bool carries_alone() const { return false; }

  /// Breaks the group: everything in flight and later ends with Aborted and `reason`, here and, as
  /// far as they can be reached, on the peers.
  virtual void Abort(const Status& reason) = 0;

  /// **Collective.** Over the ranks that are alive, also after the group has broken: makes the
  /// group of those that call it, in the order of their ranks here. All of them get the same
  /// members. Unimplemented where an engine cannot.
  virtual StatusOr<std::unique_ptr<Transport>> Survivors(Deadline deadline);

  /// Of a group that `Survivors` made: the ranks that its members had before, in order. Otherwise,
  /// and where an engine does not tell, nothing.
  virtual std::vector<Rank> survived() const { return {}; }

  /// Memory that the peers reach without a copy; an empty handle if there is none. Blocks keep it
  /// alive, and may outlive the transport.
  virtual MemoryHandle memory() { return {}; }

  /// Whether `Operation::on_reduced` is called by this engine.
  virtual bool reports_reduced() const { return false; }

  /// Where memory of this rank lies, for its peers, as a number that `Reach` of a peer makes an
  /// address of; kOutOfReach if they cannot touch it.
  static constexpr std::uint64_t kOutOfReach = ~std::uint64_t{0};
  virtual std::uint64_t Locate(const void* data, std::size_t bytes) const {
    static_cast<void>(data);
    static_cast<void>(bytes);
    return kOutOfReach;
  }
  /// The address here of what rank `peer` has located; null if there is nothing.
  virtual void* Reach(Rank peer, std::uint64_t where, std::size_t bytes) const {
    static_cast<void>(peer);
    static_cast<void>(where);
    static_cast<void>(bytes);
    return nullptr;
  }

  /// See `Communicator::ForgetPeerPages`.
  virtual void ForgetPeerPages() {}

  /// What this rank is doing, for the messages of peers that wait for it: "step 812, data". Cheap:
  /// a transport that cannot pass it on ignores it. Any thread.
  virtual void Note(std::int64_t step, std::string_view phase) {
    static_cast<void>(step);
    static_cast<void>(phase);
  }
};

}  // namespace ait::inline v0

#endif  // AIT_COMM_TRANSPORT_H_

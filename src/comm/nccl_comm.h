// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_NCCL_COMM_H_
#define AIT_COMM_NCCL_COMM_H_

// One communicator of NCCL that does not block, and its end.
//
// NCCL answers "in progress"; whoever waits polls it and asks `KeepGoing` meanwhile, whose error
// (a deadline, a dead rank) gives the wait up. The end of a communicator can take as long as it
// likes, on a thread of its own.

#include <nccl.h>

#include <functional>
#include <memory>
#include <string_view>

#include "ait/base/clock.h"
#include "ait/base/status.h"
#include "ait/device/runtime.h"
#include "comm/nccl_library.h"

namespace ait::inline v0::internal {

/// Ok to wait on, or why not.
using KeepGoing = std::function<Status()>;

/// **Thread-safety.** One thread at a time, but for `Abort` and `AwaitEnd`.
class NcclComm {
 public:
  struct Place {
    std::shared_ptr<NcclLibrary> library;
    std::shared_ptr<DeviceRuntime> devices;
    Device device;
  };

  /// **Collective.** Begins to connect; `Ready` tells when it is done.
  static StatusOr<std::unique_ptr<NcclComm>> Begin(const Place& place, const ncclUniqueId& id,
                                                   int rank, int size);
  /// **Collective. Blocks.** Over all ranks of this communicator: the one of those with the same
  /// `color`, ordered by `key`; null for NCCL_SPLIT_NOCOLOR.
  StatusOr<std::unique_ptr<NcclComm>> Split(int color, int key, const KeepGoing& keep_going);

  /// Aborts if it was not closed, and does not wait.
  ~NcclComm();
  NcclComm(const NcclComm&) = delete;
  NcclComm& operator=(const NcclComm&) = delete;

  ncclComm_t get() const;
  const NcclLibrary& library() const { return *place_.library; }

  /// True once the last call has been taken, so that another may follow; the error of NCCL if it has
  /// failed meanwhile, also because of a peer.
  StatusOr<bool> Ready(std::string_view what) const;
  /// **Blocks.** Until `Ready`. `result` is what the last call returned.
  Status Settle(ncclResult_t result, std::string_view what, const KeepGoing& keep_going) const;

  /// Ends it while operations may be in flight: they stop. `release` runs after, on the thread that
  /// does it: it waits for the streams, and what it holds lives as long.
  void Abort(std::function<void()> release = {});
  /// Ends it when nothing is in flight.
  void Close(std::function<void()> release = {});
  /// **Blocks.** After `Abort` or `Close`: true if NCCL has let go of it by the deadline.
  bool AwaitEnd(Deadline deadline) const;

 private:
  struct State;
  enum class Ending { kAbort, kClose };
  NcclComm(Place place, std::shared_ptr<State> state);
  void End(Ending ending, std::function<void()> release);

  const Place place_;
  std::shared_ptr<State> state_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_NCCL_COMM_H_

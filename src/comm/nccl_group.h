// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_NCCL_GROUP_H_
#define AIT_COMM_NCCL_GROUP_H_

// One rank's end of a group over NCCL: a thread that gives collectives to a stream in order, polls
// their events, and sees to it that they end.
//
// In flight are at most NcclSignatures::kSlots; a collective on buffers of the host runs alone,
// because it reads its input when it starts. Whatever waits on this thread ("keep going") polls all
// the rest meanwhile, so no wait holds up another operation or a deadline.
//
// A group ends once, with the first reason, as GlooGroup does; then every communicator of NCCL is
// aborted, and the operations end as soon as NCCL has let go of their buffers.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "ait/base/clock.h"
#include "ait/base/log.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/operation.h"
#include "ait/comm/work.h"
#include "ait/device/stream.h"
#include "comm/nccl_board.h"
#include "comm/nccl_comm.h"
#include "comm/nccl_memory.h"
#include "comm/nccl_messages.h"
#include "comm/nccl_signatures.h"
#include "comm/nccl_staging.h"
#include "comm/work_internal.h"

namespace ait::inline v0::internal {

class NcclGroup : public std::enable_shared_from_this<NcclGroup> {
 public:
  /// `comm` is connected.
  static StatusOr<std::shared_ptr<NcclGroup>> Create(std::shared_ptr<const NcclShared> shared,
                                                     NcclBoard::Options board,
                                                     std::unique_ptr<NcclComm> comm);
  /// Ends what is in flight, tells the peers that this rank has left, and stops the thread.
  void Close();

  Work Start(Operation operation);
  void Abort(const Status& reason);

  /// **Collective. Blocks.** Over all ranks: the group of `members`, this rank being one of them;
  /// null if there are none, for a rank that is in no group.
  StatusOr<std::shared_ptr<NcclGroup>> Split(std::span<const Rank> members, std::uint64_t id,
                                             Deadline deadline);

  int rank() const { return board_.options().rank; }
  int size() const { return size_; }
  const NcclShared& shared() const { return *shared_; }

 private:
  struct Job {
    Operation operation;
    std::shared_ptr<WorkState> state;
    NcclPlaced placed;
    std::function<Status()> control;  // not a collective, but something that runs in its place
    Time started{};
    int slot = 0;
    std::optional<Event> checked;  // the signatures are there
    std::optional<Event> done;
    std::optional<NcclStaged> staged;
    bool verified = false;
    bool posted = false;  // the board tells of it
    bool cancelled = false;
  };
  using JobPtr = std::shared_ptr<Job>;
  /// What NCCL may use until its communicator has ended.
  struct Resources {
    Stream stream;
    NcclSignatures signatures;
    std::deque<JobPtr> in_flight;
    std::vector<Event> events;  // not in use
  };
  enum class Telling { kPeersKnow, kPublish, kLeaving };

  NcclGroup(std::shared_ptr<const NcclShared> shared, NcclBoard::Options board,
            std::unique_ptr<NcclComm> comm, std::shared_ptr<Resources> resources);

  // On the thread of the group.
  void Run();
  JobPtr Next();
  void Issue(const JobPtr& job);
  Status Enqueue(Job& job);
  Status EnqueueChecks(Job& job);
  void Register(const Operation& operation);
  bool Tick();
  Status KeepGoing();
  Status Await(const Event& event);
  bool PollFront();
  void Watch();
  void CheckDeadlines(Time now);
  Status Verify(Job& job);
  Status VerifyCounts(Job& job);
  Status Mismatch(const Job& job, std::span<const std::uint64_t> signatures);
  Status Missing(const JobPtr& job);
  void Post(Job& job);
  Status PeerFailure(const Status& error);
  void FailAll();
  StatusOr<Event> TakeEvent();
  void Recycle(Job& job);
  JobPtr Front() const;

  // On any thread.
  void End(const Status& reason, Telling telling);
  Status ended();
  Status FailureOf(Job& job);  // with the lock
  void Cancel(const JobPtr& job);
  Work Queue(const JobPtr& job);

  const std::shared_ptr<const NcclShared> shared_;
  const int size_;
  NcclBoard board_;
  const std::unique_ptr<NcclComm> comm_;
  const std::shared_ptr<Resources> resources_;
  NcclMessages messages_;
  std::map<void*, void*> registered_;  // blocks of the memory and NCCL's handles
  JobPtr issuing_;
  int next_slot_ = 0;
  std::uint64_t finished_ = 0;  // sequence number of the last collective that was done
  Time next_watch_{};

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<JobPtr> queue_;
  bool ending_ = false;   // somebody sets `ended_`
  bool leaving_ = false;  // the group ended because this rank closed it
  Status ended_;          // why the group ended
  bool told_ = false;     // a collective has returned the reason; later ones are Aborted
  bool closing_ = false;
  bool busy_ = false;  // a collective is issued or in flight
  std::thread thread_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_NCCL_GROUP_H_

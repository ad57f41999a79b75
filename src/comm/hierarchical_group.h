// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_HIERARCHICAL_GROUP_H_
#define AIT_COMM_HIERARCHICAL_GROUP_H_

// One rank's end of a group over several hosts: a thread that carries out collectives in order, and
// what happens when they fail.
//
// A group ends once, with the first reason: a rank died or left, a deadline passed, the ranks mean
// different operations, somebody aborted, a group inside failed. Who finds a reason aborts the groups
// inside with it, in a form that the peers read (`CodeReason`), and publishes it in the store; so it
// reaches ranks that share no group inside with the one that failed.
//
// Steps carry bits of the signature of the operation they belong to in their sequence numbers, so a
// step of one operation never meets one of another. Their deadlines lie behind that of the operation:
// this group finds out who is missing, in its own ranks, before those inside do in theirs.

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "ait/base/clock.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/hierarchical.h"
#include "ait/comm/operation.h"
#include "ait/comm/store.h"
#include "ait/comm/tcp_store.h"
#include "ait/comm/transport.h"
#include "ait/comm/work.h"
#include "comm/hierarchical_collectives.h"
#include "comm/host_layout.h"
#include "comm/rank_reports.h"
#include "comm/work_internal.h"

namespace ait::inline v0::internal {

class HierarchicalGroup final : public HierarchicalLines,
                                public std::enable_shared_from_this<HierarchicalGroup> {
 public:
  struct Options {
    std::shared_ptr<Store> store;
    std::string name;  // below it this group writes in the store
    Rank rank;
    std::vector<Rank> members;  // by rank: rank in the store's world
    HostLayout layout;
    HierarchicalTuning tuning;
  };
  /// By `Line`; inside is null for a rank alone on its host, column for one outside the columns.
  using Transports = std::array<std::unique_ptr<Transport>, 3>;

  /// `patient` outlives the group.
  static StatusOr<std::shared_ptr<HierarchicalGroup>> Create(PatientThread& patient,
                                                             Options options,
                                                             Transports transports);
  /// Ends what is in flight, leaves the groups inside and stops the thread. Not from a callback:
  /// see `EndsHere`.
  void Close();
  /// True on a thread that is just telling a group inside of an end.
  static bool EndsHere();

  Work Start(Operation operation);
  void Abort(const Status& reason);
  void Note(std::int64_t step, std::string_view phase);
  const Options& options() const { return options_; }
  MemoryHandle memory() const;

  /// The same of the transport of that line; it exists.
  StatusOr<std::unique_ptr<Transport>> Subgroup(Line line, std::span<const Rank> members,
                                                std::uint64_t id, Deadline deadline);

  Work Begin(Line line, Operation operation) override;
  Status Await(const Work& work) override;

 private:
  enum class Cause { kNone, kStuck, kFailed, kExpired };
  enum class Telling { kPeersKnow, kPublish };
  struct Job {
    Operation operation;
    std::shared_ptr<WorkState> state;
    std::string description;  // of a job that runs
    Time started{};
    Time look_again{};
    int late_slices = 0;  // that the thread has waited since it saw that the deadline had passed
    Cause asked = Cause::kNone;
    bool posted = false;  // the store tells of it; of the thread that diagnoses
    bool cancelled = false;
  };
  using JobPtr = std::shared_ptr<Job>;
  struct Step {
    Work work;
    Line line;
  };

  HierarchicalGroup(PatientThread& patient, Options options, Transports transports);

  void Run();
  Status RunJob(Job& job);
  void FindCause(const JobPtr& job, const Status& status);
  Status LookAround();
  bool EndIfSomeoneDied();
  Status FailureOf(Job& job);  // with the lock
  void End(const Status& reason, Telling telling);
  void Cancel(const JobPtr& job);
  void AskDiagnosis(const JobPtr& job, Cause cause);
  void Diagnose(const JobPtr& job, Cause cause);
  bool IsOver(const JobPtr& job);

  Work StartMessage(Operation operation);
  Status MessageFailure(const Operation& operation, Line line, const Status& status);
  std::string Numbers(Line line) const;
  Transport& At(Line line) const { return *transports_[static_cast<std::size_t>(line)]; }

  PatientThread& patient_;
  const Options options_;
  Transports transports_;
  std::array<std::mutex, 3> start_mutexes_;  // messages and collectives are two threads
  TcpStore* const tcp_store_;                // tells of deaths; null if the store is another
  const std::shared_ptr<RankReports> reports_;
  HierarchicalCollectives collectives_;
  std::uint64_t watch_ = 0;

  // Of the thread that carries out collectives.
  std::vector<Step> steps_;
  std::array<std::uint64_t, 3> step_counts_{};
  std::uint64_t signature_ = 0;
  Deadline step_deadline_ = Deadline::Infinite();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<JobPtr> queue_;
  JobPtr current_;
  std::uint64_t finished_ = 0;  // sequence number of the last collective that was done
  Status ended_;                // why the group ended
  bool told_ = false;           // a collective has returned the reason; later ones are Aborted
  bool closing_ = false;
  int ending_ = 0;  // threads that tell the groups inside
  std::atomic<bool> diagnosing_{false};
  std::thread thread_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_HIERARCHICAL_GROUP_H_

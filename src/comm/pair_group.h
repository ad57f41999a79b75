// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_PAIR_GROUP_H_
#define AIT_COMM_PAIR_GROUP_H_

// One rank's end of a group: a thread that carries out collectives in order, and what happens when
// they fail.
//
// A group ends once, with the first reason: a rank died, a connection broke, a deadline passed, the
// ranks mean different operations, somebody aborted. The reason is published under "end/<group>",
// which every member watches, so that all of them end and say the same.
//
// Who is stuck says so under "at/<group>/<rank>": its sequence number, the last one it finished,
// signature and description. Two ranks mean different operations if their numbers are equal and
// their signatures are not, or if one has passed over the other's number without doing it. Both
// stay true however old the record is.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "ait/base/clock.h"
#include "ait/base/log.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/operation.h"
#include "ait/comm/work.h"
#include "comm/pair_collectives.h"
#include "comm/pair_hub.h"
#include "comm/pair_link.h"
#include "comm/pair_messages.h"
#include "comm/work_internal.h"

namespace ait::inline v0::internal {

/// Is set in the store when rank `rank` of the group has left it.
std::string LeftKey(std::string_view group, int rank);

class PairGroup final : public PairMember, public std::enable_shared_from_this<PairGroup> {
 public:
  struct Options {
    std::string engine;  // name of the transport: "gloo"
    /// **Collective. Blocks.** Connects the members.
    std::function<StatusOr<std::unique_ptr<PairLink>>(const Options& options, Deadline deadline)>
        connect;
    /// What carries out collectives; empty: messages between pairs.
    std::function<std::unique_ptr<CollectiveRunner>(const Options& options, PairLink& link)>
        collectives;
    std::shared_ptr<TcpStore> store;
    std::string name;           // unique in the run
    Rank rank;                  // in the group
    std::vector<Rank> members;  // by rank in the group: rank in the world
    Bytes segment;
    LogSink* log = nullptr;
  };

  /// **Collective. Blocks.** Until the members are connected. `hub` outlives `Close`.
  static StatusOr<std::shared_ptr<PairGroup>> Create(PairHub& hub, Options options,
                                                     Deadline deadline);
  /// Ends what is in flight, tells the peers that this rank has left, and stops the threads.
  void Close();

  Work Start(Operation operation);
  void Abort(const Status& reason);
  const Options& options() const { return options_; }
  /// True if that rank has closed its end.
  StatusOr<bool> HasLeft(Rank rank) { return hub_.store().Contains(Key("left", rank.value())); }

  void RankDied(Rank world_rank) override;
  bool Check(Time now) override;
  void Diagnose() override;

 private:
  /// Why the hub is to look what the peers say.
  enum class Asked { kNo, kStuck, kExpired };
  struct Job {
    Operation operation;
    std::shared_ptr<WorkState> state;
    Time started{};
    Asked asked = Asked::kNo;
    bool posted = false;  // "at" tells of it; of the thread that diagnoses
    bool cancelled = false;
  };
  using JobPtr = std::shared_ptr<Job>;
  /// What a rank says of itself under "at/".
  struct Record {
    std::uint64_t sequence = 0;
    std::uint64_t finished = 0;
    std::uint64_t signature = 0;
    std::string description;
  };
  enum class Telling { kPeersKnow, kPublish };

  PairGroup(PairHub& hub, Options options, std::unique_ptr<PairLink> link);

  void Run();
  Status Outcome(Job& job, const Status& status);
  Status FailureOf(Job& job);  // with the lock
  void End(const Status& reason, Telling telling);
  void EndHeard(const std::string& published);
  void Cancel(const JobPtr& job);
  Status WhoBroke(int peer, const Status& error);

  void DiagnoseJob(const JobPtr& job, bool expired);
  std::map<int, Record> ReadRecords();
  static bool Disagree(const Record& a, const Record& b);
  Status Mismatch(const std::map<int, Record>& records) const;
  Status Missing(const Job& job, const std::map<int, Record>& records) const;
  std::string Key(std::string_view what, int rank) const;

  PairHub& hub_;
  const Options options_;
  const int size_;
  std::unique_ptr<PairLink> link_;
  std::unique_ptr<CollectiveRunner> collectives_;
  PairMessages messages_;
  std::uint64_t watch_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<JobPtr> queue_;
  JobPtr current_;
  std::uint64_t finished_ = 0;  // sequence number of the last collective that was done
  Status ended_;                // why the group ended
  bool told_ = false;           // a collective has returned the reason; later ones are Aborted
  bool closing_ = false;
  std::thread thread_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_PAIR_GROUP_H_

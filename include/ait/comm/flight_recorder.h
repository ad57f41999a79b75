// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_FLIGHT_RECORDER_H_
#define AIT_COMM_FLIGHT_RECORDER_H_

// `FlightRecorder`: the last operations of one rank, always written down, so that a run that hangs
// or fails can tell what every rank was doing.
//
// Every `Communicator` writes into one: that of its `CommunicatorOptions`, or a small one of its
// own; groups made by `Split` share it. A record costs some tens of nanoseconds and no allocation.
// The record leaves the process as JSON: on demand, and by itself into `directory` when the first
// operation of a group fails and again when the recorder ends after a failure. An operation that the
// call refuses for its arguments is written down and is no failure: the group goes on. `ait hang DIR`
// merges the files of all ranks into one verdict.
//
//   auto recorder = std::make_shared<FlightRecorder>(
//       FlightRecorderOptions{.rank = Rank(0), .size = WorldSize(4), .directory = "flight"});
//   communicator->Note(812, "data");             // what the rank does between operations
//   AIT_RETURN_IF_ERROR(recorder->DumpToDirectory("flight"));            // flight/rank-0.json
//
// **Thread-safety.** All members may be called from any thread. Not from a signal handler: let a
// thread of the program wait for the signal.

#include <atomic>
#include <cstdint>
#include <deque>
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

namespace ait::inline v0 {

struct RankReport;

struct FlightRecorderOptions {
  /// Operations kept, of 200 bytes each; 16 to 65536, rounded up to a power of two.
  int capacity = 1024;
  /// Of the world, for the name of the file and for the reader.
  Rank rank;
  WorldSize size{1};
  /// Where the record goes when an operation fails; made if it is missing. Empty: nowhere.
  std::string directory;
  /// Is told where the record was written, or why it could not be. Outlives the recorder.
  LogSink* log = nullptr;
};

enum class FlightState : std::uint8_t { kWaiting = 0, kDone, kFailed };
std::string_view Name(FlightState state);

/// One operation as it was issued. Texts that are too long are cut.
struct FlightRecord {
  std::uint64_t number = 0;  // counted from 1 over all groups of the rank
  std::uint64_t sequence = 0;
  std::int64_t count = 0;        // elements; of an operation with parts, of all of them
  std::uint64_t parts_hash = 0;  // of unequal parts; 0 if there are none
  Time issued{};
  Time started{};   // data began to move; Time{} if unknown
  Time finished{};  // Time{} while it has not ended, or if it ended within the call
  Time deadline{};
  std::int64_t step = 0;  // of the last `Note`
  std::uint32_t group = 0;
  std::uint32_t tag = 0;
  std::int32_t peer = 0;
  OperationKind kind{};
  ReduceOp reduce{};
  DType dtype{};
  FlightState state = FlightState::kWaiting;
  StatusCode code = StatusCode::kOk;
  char phase[16] = {};
  char label[48] = {};
};

class FlightGroup;

class FlightRecorder : public std::enable_shared_from_this<FlightRecorder> {
 public:
  explicit FlightRecorder(FlightRecorderOptions options = {});
  /// Writes the record once more if an operation failed and there is a directory.
  ~FlightRecorder();
  FlightRecorder(const FlightRecorder&) = delete;
  FlightRecorder& operator=(const FlightRecorder&) = delete;

  const FlightRecorderOptions& options() const { return options_; }

  /// What the rank does from now on: "step 812, data". `phase` is cut at 15 bytes.
  void Note(std::int64_t step, std::string_view phase);

  /// The operations kept, oldest first.
  std::vector<FlightRecord> Records() const;

  /// What `ait hang` reads; its format is told in docs/hang.md.
  std::string ToJson() const;
  /// **Blocks.** Writes "rank-N.json" durably into `directory`, which is made if it is missing.
  Status DumpToDirectory(const std::string& directory) const;
  /// The same into the directory of the options; nothing without one.
  Status Dump() const;

  /// Notes that the run is over for this rank, and why; starts a dump. The last reason counts, but
  /// ABORTED and CANCELLED, which tell of another one, do not take the place of an earlier one.
  void Fail(const Status& reason);

  // For `Communicator` and for what watches over a run.

  /// Takes a group in. `members` are ranks of the world, by rank in the group.
  std::unique_ptr<FlightGroup> AddGroup(std::string name, std::vector<Rank> members);

  /// Where the rank stands: step, phase, and every group with the first operation that is not done.
  RankReport Report() const;
  /// Operations that wait, oldest first.
  std::vector<FlightRecord> Outstanding() const;
  /// Adds what is known of an operation that waits to the error with which it may end.
  void Explain(std::uint64_t number, std::string text);

 private:
  friend class FlightGroup;
  /// Held for nanoseconds, and for a copy of the record.
  class Lock {
   public:
    explicit Lock(const FlightRecorder& recorder) : locked_(recorder.locked_) {
      while (locked_.exchange(true, std::memory_order_acquire)) std::this_thread::yield();
    }
    ~Lock() { locked_.store(false, std::memory_order_release); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    std::atomic<bool>& locked_;
  };
  struct GroupInfo {
    std::string name;
    std::vector<Rank> members;
    std::uint32_t id = 0;
    // Guarded by the lock.
    bool closed = false;
    bool failed = false;         // guarded by `mutex_`
    std::uint64_t issued = 0;    // sequence number of the last collective that was called
    std::uint64_t finished = 0;  // and of the last that was done
  };
  struct Noted {
    std::int64_t step = 0;
    Time time{};
    char phase[16] = {};
  };

  FlightRecord& Slot(std::uint64_t number) const { return records_[number & mask_]; }
  std::uint64_t Begin(GroupInfo& group, const Operation& operation, Time now);
  Status End(GroupInfo& group, std::uint64_t number, Status status, Time started, Time finished);
  Status Failed(std::uint64_t number, const Status& status);
  void Close(GroupInfo& group);
  std::string GroupName(std::uint32_t id) const;
  void FailGroup(GroupInfo& group, const Status& reason);
  void FailLocked(const Status& reason);
  void RunDumper();
  void DumpAndTell() const;

  const FlightRecorderOptions options_;
  const std::uint64_t mask_;
  const std::unique_ptr<FlightRecord[]> records_;
  mutable std::atomic<bool> locked_{false};
  std::uint64_t issued_ = 0;
  std::uint64_t outstanding_ = 0;
  Noted noted_;
  Noted notes_[32];  // a ring
  std::uint64_t notes_taken_ = 0;

  mutable std::mutex mutex_;  // of what is rare; taken before the other lock
  mutable std::mutex file_mutex_;
  std::map<std::uint32_t, std::shared_ptr<GroupInfo>> groups_;  // open ones, and the last closed
  std::deque<std::uint32_t> closed_;
  std::uint32_t next_group_ = 1;
  std::map<std::uint64_t, std::string> explanations_;  // by number of the operation
  std::deque<std::string> told_;                       // the last explanations, for the file
  Status failure_;
  std::thread dumper_;
  bool dumping_ = false;     // the thread is at work
  bool dump_again_ = false;  // and has to once more
};

/// A group's share of a recorder, which it keeps alive. The group is closed when this ends.
class FlightGroup {
 public:
  ~FlightGroup();
  FlightGroup(const FlightGroup&) = delete;
  FlightGroup& operator=(const FlightGroup&) = delete;

  const std::string& name() const { return info_->name; }
  const std::vector<Rank>& members() const { return info_->members; }
  FlightRecorder& recorder() const { return *recorder_; }

  /// Writes an operation down; returns its number.
  std::uint64_t Begin(const Operation& operation, Time now) {
    return recorder_->Begin(*info_, operation, now);
  }
  /// Notes how the operation ended. Returns `status`, with what is known of the wait if it is a
  /// deadline that passed.
  Status End(std::uint64_t number, Status status, Time started, Time finished) {
    return recorder_->End(*info_, number, std::move(status), started, finished);
  }
  /// Notes that the group is over for this rank, and why, if it is the first reason of the group.
  void Fail(const Status& reason) { recorder_->FailGroup(*info_, reason); }

 private:
  friend class FlightRecorder;
  FlightGroup(std::shared_ptr<FlightRecorder> recorder,
              std::shared_ptr<FlightRecorder::GroupInfo> info)
      : recorder_(std::move(recorder)), info_(std::move(info)) {}

  const std::shared_ptr<FlightRecorder> recorder_;
  const std::shared_ptr<FlightRecorder::GroupInfo> info_;
};

}  // namespace ait::inline v0

#endif  // AIT_COMM_FLIGHT_RECORDER_H_

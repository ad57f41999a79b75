// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_RANK_REPORTS_H_
#define AIT_COMM_RANK_REPORTS_H_

// What the ranks of a group tell each other through a store when something is wrong.
//
// Who is stuck says where: the number of its collective, the last one it finished, signature and
// description. Two ranks mean different operations if their numbers are equal and their signatures
// are not, or if one has passed over the other's number without doing it. Both stay true however old
// the record is. Who leaves says what it had finished, so that those who still wait for it know.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "ait/base/clock.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/operation.h"
#include "ait/comm/store.h"

namespace ait::inline v0::internal {

/// A reason as an Aborted status that any transport carries to its peers, and back.
Status CodeReason(const Status& reason);
std::optional<Status> DecodeReason(const Status& status);

/// **Thread-safety.** Any thread; all calls wait for the store.
class RankReports {
 public:
  struct Record {
    std::uint64_t sequence = 0;
    std::uint64_t finished = 0;
    std::uint64_t signature = 0;
    std::string description;
  };
  using Records = std::map<int, Record>;  // by rank

  /// `name` is unique in the store.
  RankReports(std::shared_ptr<Store> store, std::string name, Rank rank, WorldSize size);

  Status Post(const Record& own);
  Records Read();

  void PostLeft(std::uint64_t finished);
  /// A rank that has left without doing collective `sequence`.
  std::optional<int> WhoLeft(std::uint64_t sequence);

  void PostEnd(const Status& reason);
  std::optional<Status> ReadEnd();
  std::string end_key() const { return name_ + "/end"; }
  static Status ParseEnd(const std::string& text);

  static bool Disagree(const Record& a, const Record& b);
  /// InvalidArgument: who asks for what.
  static Status Mismatch(const Records& records, int rank);
  /// DeadlineExceeded: who has not come to what `record` tells of.
  static Status Missing(const Records& records, const Record& own, WorldSize size);

 private:
  std::optional<std::string> ReadNow(const std::string& key);

  std::shared_ptr<Store> store_;
  const std::string name_;
  const int rank_, size_;
};

/// A thread that does, one after the other, what may have to wait for a store. What was asked for
/// before the destructor is done in it.
class PatientThread {
 public:
  static StatusOr<std::shared_ptr<PatientThread>> Create(std::string_view what);
  ~PatientThread();
  void Do(std::function<void()> task);

 private:
  PatientThread() = default;
  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_RANK_REPORTS_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_HANG_WATCH_H_
#define AIT_COMM_HANG_WATCH_H_

// Asks, over the control plane, why an operation does not end: independent of the data plane, which
// may be what hangs.
//
// One thread per process looks a few times a second whether an operation waits for long. If one
// does, it asks a question: "hang/ask/<n>" in the store, which every rank watches. Each answers with
// its report under "hang/answer/<n>/<rank>"; a rank that is stopped cannot. Who asked judges the
// answers, logs the verdict and hands it to the recorder, which puts it into the error if the
// deadline comes. A question that somebody else has just asked serves as one's own.
//
// "hang/beat/<rank>" is renewed every few seconds while a rank gets on: what is last known of one
// that does not answer.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "ait/base/clock.h"
#include "ait/base/env.h"
#include "ait/base/log.h"
#include "ait/base/status.h"
#include "ait/comm/flight_recorder.h"
#include "ait/comm/hang_report.h"
#include "ait/comm/tcp_store.h"

namespace ait::inline v0::internal {

class HangWatch {
 public:
  /// **Errors.** ResourceExhausted: no thread.
  static StatusOr<std::unique_ptr<HangWatch>> Create(std::shared_ptr<TcpStore> store,
                                                     std::shared_ptr<FlightRecorder> recorder,
                                                     std::chrono::milliseconds report_after,
                                                     LogSink* log);
  /// Waits for a request that is on its way, a few seconds if rank 0 does not answer.
  ~HangWatch();

 private:
  /// A question that this rank awaits the answers to.
  struct Round {
    std::uint64_t number = 0;
    Time end{};
    std::map<int, std::string> answers;  // by rank
    std::vector<std::uint64_t> watches;
  };

  HangWatch(std::shared_ptr<TcpStore> store, std::shared_ptr<FlightRecorder> recorder,
            std::chrono::milliseconds report_after, LogSink* log);
  void Run();
  void Arm(std::uint64_t number);
  void Answer(std::uint64_t number);
  void Beat(Time now);
  bool IsStuck(Time now) const;
  void LookForHang(Time now);
  Time DueAt(const FlightRecord& record) const;
  void Ask(Time now, const FlightRecord& oldest);
  void Conclude();
  void Tell(const std::string& text);
  RankReport ReportOfSilent(int rank, bool died);

  const std::shared_ptr<TcpStore> store_;
  const std::shared_ptr<FlightRecorder> recorder_;
  const Rank rank_;
  const int size_;
  const Duration report_after_;
  LogSink* const log_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool stopping_ = false;
  std::deque<std::uint64_t> asked_;  // questions to answer
  std::optional<Round> round_;       // written by the store's thread too
  // Of the thread alone.
  std::map<std::uint64_t, std::uint64_t> armed_;  // questions watched for, and their watches
  std::uint64_t last_asked_ = 0;
  Time last_asked_at_{};
  Time next_beat_{};
  std::string last_beat_;
  std::uint64_t told_about_ = 0;  // the operation that the last verdict was about
  bool told_ = false;             // and that verdict was told
  Time tell_again_{};
  Duration pause_{};  // between verdicts about the same one
  std::thread thread_;
};

/// The recorder of a process of a world: `given`, or a new one, which after a failure writes where
/// AIT_FLIGHT_DIRECTORY says. **Errors.** InvalidArgument: `given` is of another rank.
StatusOr<std::shared_ptr<FlightRecorder>> WorldRecorder(std::shared_ptr<FlightRecorder> given,
                                                        const Env& env, Rank rank, WorldSize size,
                                                        LogSink* log);

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_HANG_WATCH_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_LAUNCH_SUPERVISOR_INTERNAL_H_
#define AIT_LAUNCH_SUPERVISOR_INTERNAL_H_

// Watches running ranks until no process of them is left, and stops them when that is due.

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "ait/launch/launcher.h"
#include "launch/fd_internal.h"
#include "launch/host_group_internal.h"
#include "launch/line_tail_internal.h"
#include "launch/spawn_internal.h"

namespace ait::inline v0::internal {

/// What was done about processes that a rank started and left behind.
enum class Leftovers { kNone, kTerminated, kKilled };

/// A rank as the supervisor sees it. Its process group has the number of its first process.
struct RankProcess {
  pid_t pid = -1;
  FileDescriptor pid_fd;  // readable when the process has ended; closed if the kernel has none
  FileDescriptor
      streams[2];  // what it writes to standard output and error; closed if it is not captured
  LineTail errors;
  bool ended = false;       // the first process of the group
  bool group_gone = false;  // and all others
  bool unkillable = false;  // given up: something is left
  Leftovers leftovers = Leftovers::kNone;
  Deadline leftovers_until = Deadline::Infinite();
  RankExit exit;
};

class Supervisor {
 public:
  /// `wake` is read for signals that `Launcher::Stop` was called with. All outlive the supervisor.
  /// `hosts` is null for a run on one host.
  Supervisor(const LaunchOptions& options, const LaunchPlan& plan, const FileDescriptor& wake,
             Guard& guard, HostGroup* hosts);

  void Add(RankProcess rank);

  /// Returns when no process is left.
  LaunchResult Watch();
  /// Kills what was added, without grace: the launch has failed.
  void Abandon();

 private:
  // How far the run is on its way to be stopped. Each stage is one means; the next follows after
  // the grace.
  enum class Stage { kRunning, kAsked, kTerminated, kKilled, kGivenUp };

  void Enter(Stage stage, int signal);
  void AdvanceStage();
  void Poll();
  void ReadStream(std::size_t rank, RankStream stream);
  void ReadWake();
  void ReapRanks();
  void FollowGroups();
  void SignalGroups(int signal) const;
  bool AllGone() const;
  Duration PollTime() const;
  LaunchResult Conclude(Duration wall_time);
  void ConcludeHosts(LaunchResult& result);
  Rank GlobalRank(std::size_t index) const;
  std::string DescribeFirstFailure() const;
  void TellHosts(int code, std::string text);

  const LaunchOptions& options_;
  const LaunchPlan& plan_;
  const FileDescriptor& wake_;
  Guard& guard_;
  HostGroup* const hosts_;
  std::vector<RankProcess> ranks_;

  Stage stage_ = Stage::kRunning;
  Deadline stage_until_ = Deadline::Infinite();
  Deadline run_until_ = Deadline::Infinite();
  std::optional<std::size_t> first_failure_;  // of this host's ranks
  Duration failed_after_{};
  Time start_;
  bool timed_out_ = false;
  bool stopped_by_host_ = false;  // something failed on another host before it did here
  int stop_signal_ = 0;
  bool signal_of_other_host_ = false;  // and none came here since
};

}  // namespace ait::inline v0::internal

#endif  // AIT_LAUNCH_SUPERVISOR_INTERNAL_H_

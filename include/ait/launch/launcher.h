// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_LAUNCH_LAUNCHER_H_
#define AIT_LAUNCH_LAUNCHER_H_

// Starts a program as the ranks of one run on this host, and sees it to its end. `ait run` is this
// class with a command line; a host program may use it directly.
//
// The ranks find each other by the variables that torchrun made usual (RANK, WORLD_SIZE,
// MASTER_ADDR, …; see "ait/base/env.h"). No shell reads the command. The port cannot be taken by
// anyone else, because the socket that listens on it is made here and inherited by rank 0. When a
// rank fails, the others are asked to end (TERM) and after a grace made to (KILL); `Run` returns
// when no process of the run is left. A run over several hosts has a launcher on each; they number
// the ranks, stop together and end together (`LaunchOptions::hosts`). It is not a scheduler: one
// attempt, on hosts that somebody else has chosen.
//
//   AIT_ASSIGN_OR_RETURN(Launcher launcher, Launcher::Create({.command = {"./train", "--steps=9"},
//                                                            .world_size = WorldSize(2)}));
//   AIT_ASSIGN_OR_RETURN(LaunchResult result, launcher.Run());
//   if (!result.status.ok()) Report(result.status);  // names the rank that failed first, and how
//
// If the launching process or the thread in `Run` dies, whatever the reason, the ranks are killed.
// docs/launcher.md tells how, and the limits.

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/clock.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/topology/id_set.h"
#include "ait/topology/rank_layout.h"

namespace ait::inline v0 {

enum class RankStream { kOutput, kError };

/// Receives what the ranks write. It outlives the launcher.
/// **Thread-safety.** Called only by the thread that is in `Launcher::Run`.
class RankOutput {
 public:
  virtual ~RankOutput() = default;
  /// A piece of a stream as it came: many lines, or a part of one. The empty piece ends a stream.
  virtual void Write(Rank rank, RankStream stream, std::string_view text) = 0;
};

enum class CpuBinding {
  kDivide,  // each rank gets its share of the CPUs of this process, as `LaunchLayout` says
  kNone,    // ranks run where the scheduler puts them
};

/// How the ranks of a host are spread over it; see "ait/topology/rank_layout.h".
struct LaunchLayout {
  LayoutPolicy policy = LayoutPolicy::kCompact;  ///< by GPU: in the order in which CUDA counts them
  int cores = 0;                                 ///< of each rank; 0: equal shares of all
  int service_cores = 0;                         ///< of those, left to communication and loading
};

enum class RankInput {
  kNone,      // standard input of every rank is empty
  kRankZero,  // rank 0 reads the standard input of this process, the others nothing
};

enum class RankPort {
  kInherited,  // rank 0 inherits the socket that listens on MASTER_PORT: nobody can take the port
  kFree,  // the port is let go before rank 0 starts, for programs that do not know AIT_LISTEN_FD
};

/// Whether rank 0 believes that it writes to a terminal: a pseudo-terminal stands in the place of
/// the pipe, so that a progress line is redrawn and colours are used.
enum class RankTerminal { kNone, kError, kOutputAndError };

/// A run over several hosts: which of them this is, and where their launchers meet.
struct LaunchHosts {
  int count = 1;
  int index = 0;           ///< 0 to count - 1; ranks are numbered over the hosts in this order
  std::string address;     ///< of host 0, as the others reach it
  std::uint16_t port = 0;  ///< where the launcher of host 0 listens
  Duration join_timeout = std::chrono::minutes(5);  ///< until all launchers have come
};

/// Most ranks of one launch on one host.
inline constexpr int kMaxLaunchRanks = 4096;

struct LaunchOptions {
  /// Program and arguments, passed on as they are. A program without a slash is looked for in PATH.
  std::vector<std::string> command;
  WorldSize world_size{1};  ///< ranks of this host: 1 to kMaxLaunchRanks; hosts may differ
  LaunchHosts hosts = {};

  CpuBinding binding = CpuBinding::kDivide;
  LaunchLayout layout = {};
  /// OMP_NUM_THREADS of each rank. 0 keeps the variable of this process, of a list for nested
  /// regions ("4,2") the first number; if it is not set, each rank gets as many threads as its
  /// share of the CPUs allows.
  int threads = 0;

  Duration timeout = Duration::max();         ///< of the whole run; then it is stopped
  Duration grace = std::chrono::seconds(10);  ///< between one means to stop the ranks and the next

  /// Variables for every rank, added to those of this process. The variables of the launch itself
  /// win; those of torchrun are taken out, so that a launch inside another works.
  std::map<std::string, std::string> environment = {};

  RankOutput* output = nullptr;  ///< nullptr: ranks write to the streams of this process
  RankInput input = RankInput::kNone;
  RankPort port = RankPort::kInherited;
  RankTerminal terminal = RankTerminal::kNone;  ///< needs `output`
};

/// What was decided for one rank.
struct RankPlan {
  CpuSet cpus;                                      ///< it is bound to; empty if it is not
  int threads = 1;                                  ///< its OMP_NUM_THREADS
  std::optional<RankLayout> layout = std::nullopt;  ///< its AIT_LAYOUT; nullopt if it is not bound
  std::optional<int> memory_node = std::nullopt;    ///< it prefers memory of; nullopt: first touch
};

struct LaunchPlan {
  std::string program;             ///< path of the program that was found
  std::string run_id;              ///< AIT_RUN_ID: differs between any two launches
  std::string master;              ///< MASTER_ADDR: 127.0.0.1, or the address of host 0
  int port = 0;                    ///< MASTER_PORT
  int first_rank = 0;              ///< of this host
  int world_size = 1;              ///< of all hosts
  std::vector<RankPlan> ranks;     ///< of this host
  std::string first_touch;         ///< why ranks that are bound prefer no node; "" if they do
  std::vector<std::string> notes;  ///< what in the layout is not as one would wish
};

/// How one rank ended.
struct RankExit {
  pid_t pid = 0;
  int code = 0;             ///< exit code as a shell gives it: 128 + signal if a signal ended it
  int signal = 0;           ///< the signal that ended it; 0 if none did
  bool stopped = false;     ///< it ended after the run began to be stopped
  std::string last_errors;  ///< its last lines on standard error, at most 20; needs `output`
};

struct LaunchResult {
  /// Ok if every rank ended with 0. Aborted: a rank failed; the text names the first one and how.
  /// Unavailable: the launcher of another host died.
  /// DeadlineExceeded: the time-out. Cancelled: `Stop` was called, and not every rank ended with 0.
  /// Internal: processes are left that not even KILL ends (they wait in the kernel).
  Status status;
  /// 0; or the code of the rank that failed first, on whatever host; or 124 after the time-out, or
  /// 125 if a launcher died. The same on all hosts.
  int exit_code = 0;
  std::optional<Rank> first_failure;
  std::vector<RankExit> ranks;  ///< of this host
  Duration wall_time{};
};

/// One launch. Move-only.
class Launcher {
 public:
  /// Finds the program, takes a port, divides the CPUs; starts nothing. **Blocks**, with several
  /// hosts, until all launchers have come.
  /// **Errors.** InvalidArgument: an option or OMP_NUM_THREADS out of its range, no GPU to lay out
  /// by. NotFound: no such program. PermissionDenied: the program is not executable. ResourceExhausted: no socket is
  /// free. DeadlineExceeded names the hosts that did not come; FailedPrecondition: the port is in
  /// use, launchers disagree on the number of hosts, or there are not the cores that the layout wants.
  static StatusOr<Launcher> Create(LaunchOptions options);

  Launcher(Launcher&&) noexcept;
  Launcher& operator=(Launcher&&) noexcept;
  ~Launcher();

  const LaunchPlan& plan() const;

  /// Starts the ranks and waits for their end. May be called once.
  /// **Blocks.** Until no process of any rank's process group is left.
  /// **Errors.** Only if the ranks could not be started (then none is left): PermissionDenied, the
  /// system refuses to execute the program; ResourceExhausted, no more processes or descriptors;
  /// FailedPrecondition, a second call. A rank that fails is a result.
  StatusOr<LaunchResult> Run();

  /// Sends `signal` to all ranks, then after each grace TERM and KILL. Called again, or while the
  /// run is being stopped already, it kills at once.
  /// **Thread-safety.** From any thread, before or during `Run`, and from a signal handler.
  void Stop(int signal) noexcept;

 private:
  struct Impl;
  explicit Launcher(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// "exited with code 7" or "was ended by signal 9 (Killed)".
std::string Describe(const RankExit& exit);

}  // namespace ait::inline v0

#endif  // AIT_LAUNCH_LAUNCHER_H_

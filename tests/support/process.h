// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_SUPPORT_PROCESS_H_
#define AIT_TESTS_SUPPORT_PROCESS_H_

// Processes of a test: the rig for whatever needs more than one of them.
//
// Six verbs: spawn, wait, signal, pause, expect an exit, read the output. Every wait has a time-out
// that fails the test; when a `Process` goes out of scope, it and what it started are killed, and
// the same happens when the test itself is killed. Processes are started by posix_spawn, so a test
// with threads may use it; they end with the thread that spawned them.
//
//   auto ranks = SpawnRanks({.program = AIT_TEST_RANK, .args = {"all-reduce"}}, 2);
//   ranks[1].ReadUntil("ready");
//   ranks[1].Signal(SIGKILL);
//   ranks[0].ExpectExit(3, "rank 1 is gone");
//
// The program is a target of the test's CMakeLists.txt (see AIT_TEST_RANK in tests/support).

#include <sys/types.h>

#include <chrono>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace ait::testing {

struct SpawnOptions {
  std::string program;  ///< path; no search in PATH, no shell
  std::vector<std::string> args = {};
  /// Added to the environment of the test, from which all launch variables are taken out.
  std::map<std::string, std::string> environment = {};
  std::string input = {};               ///< what standard input holds
  std::chrono::seconds timeout{60};     ///< of every wait
  std::map<int, int> descriptors = {};  ///< further descriptors: number there → number here
};

/// How a process ended.
struct Exit {
  int code = -1;       ///< exit code; 128 + signal if a signal ended it; -1 if it did not end
  std::string output;  ///< all it wrote: standard output, then standard error
};

/// A process and the process group it leads. Move-only; used from one thread.
class Process {
 public:
  /// Starts a program. Fails the test if it cannot.
  static Process Spawn(const SpawnOptions& options);

  Process(Process&& other) noexcept;
  Process& operator=(Process&& other) noexcept;
  ~Process();  ///< kills the process and its group

  pid_t pid() const { return pid_; }
  bool running();

  /// Waits until the process ends; on time-out fails the test and kills it.
  Exit Wait();
  /// Sends a signal to the process alone.
  void Signal(int signal);
  /// Stops the process (SIGSTOP) and returns when it stands still; `Resume` lets it go on.
  void Pause();
  void Resume();
  /// Waits, and fails the test unless the exit code is `code` and the output holds `reason`.
  void ExpectExit(int code, std::string_view reason = "");
  /// Waits until the output holds `text`, then returns the output so far. Fails the test if the
  /// process ends or the time-out passes before.
  std::string ReadUntil(std::string_view text);

  /// What was written so far: to standard output then standard error, and to one of them.
  std::string output() const;
  std::string standard_output() const;
  std::string standard_error() const;

  /// Waits until no process of the group is left; false if some still are after the time-out.
  bool GroupIsGone();

 private:
  Process() = default;
  void Kill();
  bool TryReap();

  pid_t pid_ = -1;
  int output_fd_ = -1;  // memory files behind the two streams: no thread has to pump pipes
  int error_fd_ = -1;
  int code_ = -1;
  bool reaped_ = false;
  std::string name_;  // for messages
  std::chrono::seconds timeout_{60};
};

/// Starts the same program as `world_size` ranks of one run on this host: RANK, WORLD_SIZE,
/// LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, AIT_RUN_ID, AIT_PARENT_PID,
/// OMP_NUM_THREADS=1, and for rank 0 AIT_LISTEN_FD, a socket that listens on MASTER_PORT already.
/// `options.environment` wins over these.
std::vector<Process> SpawnRanks(const SpawnOptions& options, int world_size);

/// Waits until a process has ended (a zombie has); false if it has not after `timeout`.
bool IsGone(pid_t pid, std::chrono::seconds timeout = std::chrono::seconds(10));

/// A folder under the system's temporary folder, removed with all it holds when it goes out of
/// scope.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

}  // namespace ait::testing

#endif  // AIT_TESTS_SUPPORT_PROCESS_H_

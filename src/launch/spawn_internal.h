// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_LAUNCH_SPAWN_INTERNAL_H_
#define AIT_LAUNCH_SPAWN_INTERNAL_H_

// Starts one process, and the guard that outlives a launcher which is killed.

#include <sys/types.h>

#include <string>
#include <vector>

#include "ait/base/status.h"
#include "ait/topology/id_set.h"
#include "launch/fd_internal.h"

namespace ait::inline v0::internal {

/// A process that kills the process groups of the ranks if the launcher ends without `Disarm`: it
/// reads from a socket whose other end dies with the launcher. It is forked, not
/// executed, does nothing but read and kill, and lives in a process group of its own.
class Guard {
 public:
  static StatusOr<Guard> Start();
  Guard(Guard&&) noexcept = default;
  Guard& operator=(Guard&&) noexcept = default;
  ~Guard() { Disarm(); }

  /// Where a child sends its process group before it becomes a program.
  int fd() const { return socket_.get(); }
  /// The group has ended; its number may be given to another.
  void Forget(pid_t group);
  /// Ends the guard.
  void Disarm();

 private:
  Guard() = default;
  FileDescriptor socket_;
  pid_t pid_ = -1;
};

struct SpawnRequest {
  std::string program;  // path
  std::vector<std::string> command;
  std::vector<std::string> environment;  // "NAME=value"
  int input = 0, output = 1, error = 2;  // become 0, 1, 2
  int listener = -1;                     // becomes kListenFd; -1 for none
  CpuSet cpus;                           // binding; empty for none
  int memory_node = -1;                  // whose memory it prefers, if it may; -1 for none
  int guard = -1;                        // Guard::fd()
};

inline constexpr int kListenFd = 3;

/// Starts the program as leader of a new process group, with no other descriptors than those of the
/// request, default signal dispositions, and the order to die with this thread.
/// **Blocks.** Until the program runs or could not be executed.
StatusOr<pid_t> Spawn(const SpawnRequest& request);

}  // namespace ait::inline v0::internal

#endif  // AIT_LAUNCH_SPAWN_INTERNAL_H_

// SPDX-License-Identifier: Apache-2.0
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>

#include "launch/spawn_internal.h"
#include "topology/memory_policy_internal.h"

namespace ait::inline v0::internal {
namespace {

// What runs between fork and exec may only make async-signal-safe calls: another thread of the host
// program may hold any lock. Everything that allocates is done before the fork.

constexpr int kMaxGroups = 4096;

// Where a child can fail before it is the program.
enum class Step : int { kStreams, kBinding, kExecute };

struct Failure {
  Step step;
  int error_number;
};

// Every descriptor from `first` up: closed on exec, or now.
enum class When { kOnExec, kNow };
void CloseFrom(int first, When when) {
  if (close_range(static_cast<unsigned>(first), ~0u, when == When::kOnExec ? 1 << 2 : 0) == 0) {
    return;  // 1 << 2 is CLOSE_RANGE_CLOEXEC
  }
  constexpr int kEnough = 65'536;  // a kernel before 5.9
  for (int fd = first; fd < kEnough; ++fd) {
    if (when == When::kOnExec) {
      fcntl(fd, F_SETFD, FD_CLOEXEC);
    } else {
      close(fd);
    }
  }
}

void ResetSignals() {
  struct sigaction action = {};
  action.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) {
    if (signal != SIGHUP) ::sigaction(signal, &action, nullptr);  // `nohup ait run` stays so
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

bool Place(int from, int to) {
  if (from == to) return fcntl(to, F_SETFD, 0) == 0 || errno == EBADF;  // closed stays closed
  return dup2(from, to) == to;
}

// A guard that was killed is not missed: the order to die with the launcher still stands.
void Tell(int guard, std::int32_t message) {
  [[maybe_unused]] const ssize_t n = send(guard, &message, sizeof(message), MSG_NOSIGNAL);
}

// What the child needs, made ready before the fork.
struct Prepared {
  std::vector<char*> argv, envp;
  std::vector<std::uint64_t> cpu_mask;
  pid_t launcher = getpid();
  int report = -1;
};

[[noreturn]] void BecomeProgram(const SpawnRequest& request, const Prepared& prepared) {
  const auto fail = [&](Step step) {
    const Failure failure = {step, errno};
    [[maybe_unused]] const ssize_t n = write(prepared.report, &failure, sizeof(failure));
    ::_exit(127);
  };
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != prepared.launcher) ::_exit(127);  // it died before the call above
  Tell(request.guard, getpid());
  if (!Place(request.input, 0) || !Place(request.output, 1) || !Place(request.error, 2)) {
    fail(Step::kStreams);
  }
  if (request.listener >= 0 && !Place(request.listener, kListenFd)) fail(Step::kStreams);
  CloseFrom(request.listener >= 0 ? kListenFd + 1 : kListenFd, When::kOnExec);
  if (!prepared.cpu_mask.empty() &&
      sched_setaffinity(0, prepared.cpu_mask.size() * sizeof(std::uint64_t),
                        reinterpret_cast<const cpu_set_t*>(prepared.cpu_mask.data())) != 0) {
    fail(Step::kBinding);
  }
  if (request.memory_node >= 0) {  // a preference; without it, memory lies where it is touched
    [[maybe_unused]] const int error = SetPreferredNode(request.memory_node);
  }
  ResetSignals();
  execve(request.program.c_str(), prepared.argv.data(), prepared.envp.data());
  fail(Step::kExecute);
  ::_exit(127);
}

Status Explain(const Failure& failure, const SpawnRequest& request) {
  switch (failure.step) {
    case Step::kStreams:
      return ErrnoError(failure.error_number, "cannot give ", request.program, " its streams");
    case Step::kBinding:
      return ErrnoError(failure.error_number, "cannot bind ", request.program, " to CPUs ",
                        request.cpus.ToString(),
                        "; has the cpuset of this process changed? launch without binding");
    case Step::kExecute:
      break;
  }
  const std::string reason = std::strerror(failure.error_number);
  if (failure.error_number == ENOENT) {
    return NotFoundError("cannot execute ", request.program, ": ", reason,
                         "; if the file is there, the interpreter that its first line or its ELF "
                         "header names is not");
  }
  if (failure.error_number == ENOEXEC) {
    return PermissionDeniedError("cannot execute ", request.program, ": ", reason,
                                 "; a script needs a first line such as #!/bin/sh");
  }
  if (failure.error_number == EACCES) {
    return PermissionDeniedError("cannot execute ", request.program, ": ", reason);
  }
  return ErrnoError(failure.error_number, "cannot execute ", request.program);
}

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  pointers.reserve(texts.size() + 1);
  for (const std::string& text : texts) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

// Blocks all signals of this thread while it lives: a forked child must not run a handler of the
// host program.
class SignalBlock {
 public:
  SignalBlock() {
    sigset_t all;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~SignalBlock() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  SignalBlock(const SignalBlock&) = delete;
  SignalBlock& operator=(const SignalBlock&) = delete;

 private:
  sigset_t before_;
};

Status ForkError() {
  return ErrnoError(errno,
                    "cannot start another process; `ulimit -u`, and pids.max of the cgroup, "
                    "limit how many there may be");
}

// The whole life of the guard. A positive number is a group to watch, a negative one a group to
// forget, zero the end of its duty.
[[noreturn]] void KeepGuard(int socket) {
  setpgid(0, 0);
  prctl(PR_SET_NAME, "ait-guard");
  dup2(socket, 0);
  CloseFrom(1, When::kNow);
  pid_t groups[kMaxGroups] = {};
  int count = 0;
  while (true) {
    std::int32_t message = 0;
    const ssize_t n = read(0, &message, sizeof(message));
    if (n < 0 && errno == EINTR) continue;
    if (n != sizeof(message)) break;  // the launcher is dead
    if (message == 0) ::_exit(0);
    if (message > 0) {
      if (count < kMaxGroups) groups[count++] = message;
    } else {
      for (int i = 0; i < count; ++i) {
        if (groups[i] == -message) groups[i--] = groups[--count];
      }
    }
  }
  for (int i = 0; i < count; ++i) kill(-groups[i], SIGKILL);
  ::_exit(0);
}

}  // namespace

StatusOr<Guard> Guard::Start() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0) {
    return ErrnoError(errno,
                      "cannot make a pair of sockets; `ulimit -n` is the limit of descriptors");
  }
  AIT_ASSIGN_OR_RETURN(FileDescriptor reader, Adopt(ends[0], "a socket"));
  AIT_ASSIGN_OR_RETURN(FileDescriptor writer, Adopt(ends[1], "a socket"));
  const SignalBlock block;
  const pid_t pid = fork();
  if (pid < 0) return ForkError();
  if (pid == 0) KeepGuard(reader.get());
  Guard guard;
  guard.socket_ = std::move(writer);
  guard.pid_ = pid;
  return guard;
}

void Guard::Forget(pid_t group) { Tell(socket_.get(), -group); }

void Guard::Disarm() {
  if (!socket_.is_open()) return;
  Forget(0);
  socket_.Close();
  waitpid(pid_, nullptr, 0);
}

StatusOr<pid_t> Spawn(const SpawnRequest& request) {
  AIT_ASSIGN_OR_RETURN(Pipe report, MakePipe());
  Prepared prepared;
  prepared.argv = Pointers(request.command);
  prepared.envp = Pointers(request.environment);
  prepared.report = report.write.get();
  for (const int cpu : request.cpus) {
    const auto word = static_cast<std::size_t>(cpu) / 64;
    if (prepared.cpu_mask.size() <= word) prepared.cpu_mask.resize(word + 1);
    prepared.cpu_mask[word] |= std::uint64_t{1} << (cpu % 64);
  }

  pid_t pid = -1;
  {
    const SignalBlock block;
    pid = fork();
    if (pid < 0) return ForkError();
    if (pid == 0) BecomeProgram(request, prepared);
  }
  report.write.Close();
  Failure failure = {};
  ssize_t n = 0;
  do {
    n = read(report.read.get(), &failure, sizeof(failure));
  } while (n < 0 && errno == EINTR);
  if (n != sizeof(failure)) return pid;  // closed by exec: the program runs
  waitpid(pid, nullptr, 0);
  return Explain(failure, request);
}

}  // namespace ait::inline v0::internal

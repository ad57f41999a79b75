// SPDX-License-Identifier: Apache-2.0
#include "support/process.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

namespace ait::testing {
namespace {

using namespace std::chrono_literals;

// Variables of a launch that a test may itself have been started with.
constexpr std::string_view kLaunchPrefixes[] = {
    "RANK=",        "WORLD_SIZE=",  "LOCAL_RANK=",   "LOCAL_WORLD_SIZE=",
    "MASTER_ADDR=", "MASTER_PORT=", "TORCHELASTIC_", "GROUP_",
    "ROLE_",        "AIT_",         "OMPI_",         "PMI",
    "MPI_LOCAL",    "SLURM_",       "PET_",          "JOB_COMPLETION_INDEX=",
};

std::vector<std::string> MakeEnvironment(const std::map<std::string, std::string>& added) {
  std::vector<std::string> result;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    bool keep = added.count(std::string(text.substr(0, text.find('=')))) == 0;
    for (const std::string_view prefix : kLaunchPrefixes) keep = keep && !text.starts_with(prefix);
    if (keep) result.emplace_back(text);
  }
  for (const auto& [name, value] : added) result.push_back(name + "=" + value);
  return result;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// A memory file that lies above the numbers a child uses, so that placing it there cannot hit it.
int MemoryFile(const char* name, std::string_view content) {
  const int low = memfd_create(name, MFD_CLOEXEC);
  const int fd = fcntl(low, F_DUPFD_CLOEXEC, 100);
  close(low);
  if (!content.empty() && write(fd, content.data(), content.size()) < 0) return -1;
  lseek(fd, 0, SEEK_SET);
  return fd;
}

std::string ReadAll(int fd) {
  struct stat info = {};
  if (fstat(fd, &info) != 0) return "";
  std::string text(static_cast<size_t>(info.st_size), '\0');
  const ssize_t n = pread(fd, text.data(), text.size(), 0);
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  return text;
}

// State and process group of a process, from /proc/PID/stat; state 0 if there is none.
struct ProcessState {
  char state = 0;
  pid_t group = -1;
};

ProcessState StateOf(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string text;
  std::getline(file, text);
  ProcessState result;
  const size_t after_name = text.rfind(')');
  if (after_name == std::string::npos) return result;
  int parent = 0;
  std::sscanf(text.c_str() + after_name + 1, " %c %d %d", &result.state, &parent, &result.group);
  return result;
}

bool IsDead(const ProcessState& process) {
  return process.state == 0 || process.state == 'Z' || process.state == 'X';
}

template <typename Condition>
bool PollUntil(std::chrono::steady_clock::duration timeout, Condition condition) {
  const auto end = std::chrono::steady_clock::now() + timeout;
  for (auto pause = 500us; !condition();
       pause = std::min<std::chrono::microseconds>(2 * pause, 10ms)) {
    if (std::chrono::steady_clock::now() >= end) return condition();
    std::this_thread::sleep_for(pause);
  }
  return true;
}

}  // namespace

Process Process::Spawn(const SpawnOptions& options) {
  Process process;
  process.name_ = std::filesystem::path(options.program).filename();
  for (const std::string& arg : options.args) process.name_ += " " + arg;
  process.timeout_ = options.timeout;
  process.output_fd_ = MemoryFile("stdout", "");
  process.error_fd_ = MemoryFile("stderr", "");
  const int input_fd = MemoryFile("stdin", options.input);

  // The guard asks the kernel to kill it when this thread ends, then becomes the program.
  const int keep =
      options.descriptors.empty() ? 3 : std::max(3, options.descriptors.rbegin()->first + 1);
  std::vector<std::string> args = {AIT_TEST_GUARD, std::to_string(getpid()), std::to_string(keep),
                                   options.program};
  args.insert(args.end(), options.args.begin(), options.args.end());
  std::vector<std::string> environment = MakeEnvironment(options.environment);

  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, input_fd, 0);
  posix_spawn_file_actions_adddup2(&actions, process.output_fd_, 1);
  posix_spawn_file_actions_adddup2(&actions, process.error_fd_, 2);
  for (const auto& [there, here] : options.descriptors)
    posix_spawn_file_actions_adddup2(&actions, here, there);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK);
  posix_spawnattr_setpgroup(&attributes, 0);
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_setsigmask(&attributes, &none);

  const int error = posix_spawn(&process.pid_, AIT_TEST_GUARD, &actions, &attributes,
                                Pointers(args).data(), Pointers(environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&actions);
  close(input_fd);
  if (error != 0) {
    process.pid_ = -1;
    process.reaped_ = true;
    ADD_FAILURE() << "cannot spawn " << process.name_ << ": " << std::strerror(error);
  }
  return process;
}

Process::Process(Process&& other) noexcept { *this = std::move(other); }

Process& Process::operator=(Process&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(output_fd_, other.output_fd_);
  std::swap(error_fd_, other.error_fd_);
  std::swap(code_, other.code_);
  std::swap(reaped_, other.reaped_);
  std::swap(name_, other.name_);
  std::swap(timeout_, other.timeout_);
  return *this;
}

Process::~Process() {
  Kill();
  if (output_fd_ >= 0) close(output_fd_);
  if (error_fd_ >= 0) close(error_fd_);
}

void Process::Kill() {
  if (pid_ < 0) return;
  kill(-pid_, SIGKILL);
  if (!reaped_) {
    kill(pid_, SIGKILL);
    PollUntil(timeout_, [this] { return TryReap(); });
  }
}

bool Process::TryReap() {
  if (reaped_) return true;
  int status = 0;
  if (waitpid(pid_, &status, WNOHANG) != pid_) return false;
  reaped_ = true;
  code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return true;
}

bool Process::running() { return pid_ > 0 && !TryReap(); }

Exit Process::Wait() {
  if (!PollUntil(timeout_, [this] { return TryReap(); })) {
    ADD_FAILURE() << name_ << " did not end within " << timeout_.count() << " s; it wrote:\n"
                  << output();
    Kill();
    return {.code = -1, .output = output()};
  }
  return {.code = code_, .output = output()};
}

void Process::Signal(int signal) {
  if (!running()) {
    ADD_FAILURE() << name_ << " has ended before signal " << signal << "; it wrote:\n" << output();
  } else {
    kill(pid_, signal);
  }
}

void Process::Pause() {
  Signal(SIGSTOP);
  if (reaped_) return;
  siginfo_t info = {};
  const bool stopped = PollUntil(timeout_, [&] {
    info.si_pid = 0;
    return waitid(P_PID, static_cast<id_t>(pid_), &info, WSTOPPED | WNOHANG | WNOWAIT) == 0 &&
           info.si_pid == pid_;
  });
  EXPECT_TRUE(stopped) << name_ << " does not stop";
}

void Process::Resume() { Signal(SIGCONT); }

void Process::ExpectExit(int code, std::string_view reason) {
  const Exit exit = Wait();
  EXPECT_TRUE(exit.code == code && exit.output.find(reason) != std::string::npos)
      << name_ << " ended with code " << exit.code << "; expected " << code << " and the text '"
      << reason << "'; it wrote:\n"
      << exit.output;
}

std::string Process::ReadUntil(std::string_view text) {
  const auto found = [&] {
    return standard_output().find(text) != std::string::npos ||
           standard_error().find(text) != std::string::npos;
  };
  PollUntil(timeout_, [&] { return found() || !running(); });
  EXPECT_TRUE(found()) << name_ << (running() ? " has not written" : " ended and did not write")
                       << " '" << text << "'; it wrote:\n"
                       << output();
  return output();
}

std::string Process::output() const { return standard_output() + standard_error(); }
std::string Process::standard_output() const { return ReadAll(output_fd_); }
std::string Process::standard_error() const { return ReadAll(error_fd_); }

bool Process::GroupIsGone() {
  return PollUntil(timeout_, [this] {
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
      const std::string pid = entry.path().filename();
      if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
      const ProcessState state = StateOf(pid);
      if (state.group == pid_ && !IsDead(state)) return false;
    }
    return true;
  });
}

bool IsGone(pid_t pid, std::chrono::seconds timeout) {
  return PollUntil(timeout, [pid] { return IsDead(StateOf(std::to_string(pid))); });
}

std::vector<Process> SpawnRanks(const SpawnOptions& options, int world_size) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  const int low = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int listener = fcntl(low, F_DUPFD_CLOEXEC, 100);
  close(low);
  auto* any_address = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener, any_address, length) != 0 || listen(listener, SOMAXCONN) != 0 ||
      getsockname(listener, any_address, &length) != 0) {
    ADD_FAILURE() << "cannot listen on the loopback address: " << std::strerror(errno);
  }

  static int run = 0;
  const std::string run_id = std::to_string(getpid()) + "-" + std::to_string(++run);
  std::vector<Process> ranks;
  for (int rank = 0; rank < world_size; ++rank) {
    SpawnOptions of_rank = options;
    of_rank.environment.insert({{"RANK", std::to_string(rank)},
                                {"WORLD_SIZE", std::to_string(world_size)},
                                {"LOCAL_RANK", std::to_string(rank)},
                                {"LOCAL_WORLD_SIZE", std::to_string(world_size)},
                                {"MASTER_ADDR", "127.0.0.1"},
                                {"MASTER_PORT", std::to_string(ntohs(address.sin_port))},
                                {"AIT_RUN_ID", run_id},
                                {"AIT_PARENT_PID", std::to_string(getpid())},
                                {"OMP_NUM_THREADS", "1"}});
    if (rank == 0) {
      of_rank.environment.insert({"AIT_LISTEN_FD", "3"});
      of_rank.descriptors.insert({3, listener});
    }
    ranks.push_back(Process::Spawn(of_rank));
  }
  close(listener);
  return ranks;
}

TempDir::TempDir() {
  std::string pattern = (std::filesystem::temp_directory_path() / "ait-test-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) {
    ADD_FAILURE() << "cannot make " << pattern << ": " << std::strerror(errno);
  }
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace ait::testing

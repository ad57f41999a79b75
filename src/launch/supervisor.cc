// SPDX-License-Identifier: Apache-2.0
#include "launch/supervisor_internal.h"

#include <poll.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "launch/process_group_internal.h"

namespace ait::inline v0::internal {
namespace {

using std::chrono::milliseconds;

constexpr Duration kTick = milliseconds(20);                // where nothing can be waited for
constexpr Duration kUnkillable = std::chrono::seconds(10);  // after KILL, before giving up
constexpr int kTimeoutCode = 124;                           // as timeout(1) of coreutils
constexpr int kUnknownCode = 255;  // another part of the program waited for it

std::string Seconds(Duration duration) {
  const auto tenths = std::chrono::duration_cast<milliseconds>(duration).count() / 100;
  return StrCat(tenths / 10, ".", tenths % 10, " s");
}

std::string SignalName(int signal) {
  return StrCat("signal ", signal, " (", strsignal(signal), ")");
}

void Record(int wait_status, RankExit& exit) {
  if (WIFSIGNALED(wait_status)) {
    exit.signal = WTERMSIG(wait_status);
    exit.code = 128 + exit.signal;
  } else {
    exit.code = WEXITSTATUS(wait_status);
  }
}

}  // namespace

Supervisor::Supervisor(const LaunchOptions& options, const LaunchPlan& plan,
                       const FileDescriptor& wake, Guard& guard, HostGroup* hosts)
    : options_(options),
      plan_(plan),
      wake_(wake),
      guard_(guard),
      hosts_(hosts),
      start_(SystemClock().now()) {
  run_until_ = Deadline::After(options.timeout);
}

void Supervisor::Add(RankProcess rank) {
  rank.exit.pid = rank.pid;
  rank.pid_fd = FileDescriptor(static_cast<int>(syscall(SYS_pidfd_open, rank.pid, 0)));
  for (const FileDescriptor& stream : rank.streams) {
    if (stream.is_open()) SetNonBlocking(stream);
  }
  ranks_.push_back(std::move(rank));
}

LaunchResult Supervisor::Watch() {
  while (true) {
    ReapRanks();
    FollowGroups();
    AdvanceStage();
    if (AllGone()) break;
    Poll();
  }
  // What is in the pipes still; a process that left its group may keep them open for ever.
  for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
    for (const RankStream stream : {RankStream::kOutput, RankStream::kError}) {
      ReadStream(rank, stream);
      FileDescriptor& fd = ranks_[rank].streams[static_cast<int>(stream)];
      if (!fd.is_open()) continue;
      fd.Close();
      options_.output->Write(GlobalRank(rank), stream, "");
    }
  }
  return Conclude(SystemClock().now() - start_);
}

void Supervisor::Abandon() {
  Enter(Stage::kKilled, SIGKILL);
  while (!AllGone()) {
    ReapRanks();
    FollowGroups();
    AdvanceStage();
    if (!AllGone()) SystemClock().SleepFor(milliseconds(1));
  }
}

void Supervisor::Enter(Stage stage, int signal) {
  stage_ = stage;
  stage_until_ = Deadline::After(stage == Stage::kKilled ? kUnkillable : options_.grace);
  SignalGroups(signal);
}

void Supervisor::AdvanceStage() {
  if (stage_ == Stage::kRunning) {
    if (first_failure_) {
      Enter(Stage::kTerminated, SIGTERM);
    } else if (run_until_.expired()) {
      timed_out_ = true;
      TellHosts(kTimeoutCode,
                StrCat("the run did not end within its time-out of ", Seconds(options_.timeout)));
      Enter(Stage::kTerminated, SIGTERM);
    }
    return;
  }
  if (!stage_until_.expired()) return;
  switch (stage_) {
    case Stage::kAsked:
      return Enter(Stage::kTerminated, SIGTERM);
    case Stage::kTerminated:
      return Enter(Stage::kKilled, SIGKILL);
    default:
      stage_ = Stage::kGivenUp;
      for (RankProcess& rank : ranks_) {
        if (!rank.group_gone) rank.group_gone = rank.unkillable = true;
      }
  }
}

void Supervisor::SignalGroups(int signal) const {
  for (const RankProcess& rank : ranks_) {
    if (!rank.group_gone) kill(-rank.pid, signal);
  }
}

bool Supervisor::AllGone() const {
  return std::all_of(ranks_.begin(), ranks_.end(),
                     [](const RankProcess& rank) { return rank.group_gone; });
}

Duration Supervisor::PollTime() const {
  Duration time = std::min(run_until_.remaining(), stage_until_.remaining());
  for (const RankProcess& rank : ranks_) {
    if (!rank.group_gone && (rank.ended || !rank.pid_fd.is_open())) time = std::min(time, kTick);
  }
  return time;
}

void Supervisor::Poll() {
  // What each descriptor of the poll belongs to.
  struct Source {
    std::size_t rank;
    int stream;  // 0 or 1; -1 is the end of the process
  };
  std::vector<pollfd> fds = {{wake_.get(), POLLIN, 0}};
  std::vector<Source> sources = {{}};
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    const RankProcess& rank = ranks_[i];
    for (int stream = 0; stream < 2; ++stream) {
      if (!rank.streams[stream].is_open()) continue;
      fds.push_back({rank.streams[stream].get(), POLLIN, 0});
      sources.push_back({i, stream});
    }
    if (!rank.ended && rank.pid_fd.is_open()) {
      fds.push_back({rank.pid_fd.get(), POLLIN, 0});
      sources.push_back({i, -1});
    }
  }
  const Duration time = PollTime();
  int timeout_ms = -1;
  if (time != Duration::max()) {
    const auto rounded_up = std::chrono::ceil<milliseconds>(time).count();
    timeout_ms = static_cast<int>(std::clamp<std::int64_t>(rounded_up, 0, 3'600'000));
  }
  if (poll(fds.data(), fds.size(), timeout_ms) <= 0) return;
  if (fds[0].revents != 0) ReadWake();
  for (std::size_t i = 1; i < fds.size(); ++i) {
    if (fds[i].revents == 0 || sources[i].stream < 0) continue;
    ReadStream(sources[i].rank, static_cast<RankStream>(sources[i].stream));
  }
}

void Supervisor::ReadStream(std::size_t index, RankStream stream) {
  RankProcess& rank = ranks_[index];
  FileDescriptor& fd = rank.streams[static_cast<int>(stream)];
  constexpr int kMaxPieces = 16;  // then it is another rank's turn
  for (int piece = 0; piece < kMaxPieces && fd.is_open(); ++piece) {
    char text[16'384];
    const ssize_t n = read(fd.get(), text, sizeof(text));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) return;
    const std::string_view read_text(text, n > 0 ? static_cast<std::size_t>(n) : 0);
    if (read_text.empty()) fd.Close();  // the end; a terminal says it by EIO
    if (stream == RankStream::kError) rank.errors.Add(read_text);
    options_.output->Write(GlobalRank(index), stream, read_text);
  }
}

void Supervisor::ReadWake() {
  unsigned char signals[16];
  const ssize_t n = read(wake_.get(), signals, sizeof(signals));
  for (ssize_t i = 0; i < n; ++i) {
    const bool is_of_other_host = signals[i] == 0 || (signals[i] & kOtherHost) != 0;
    if (is_of_other_host && stage_ != Stage::kRunning) continue;
    if (signals[i] == 0) {
      stopped_by_host_ = true;
      Enter(Stage::kTerminated, SIGTERM);
      continue;
    }
    const int signal = signals[i] & ~kOtherHost;
    if (is_of_other_host) {
      signal_of_other_host_ = true;
    } else if (std::exchange(signal_of_other_host_, false)) {
      continue;  // whoever stops the run may tell every launcher: that is not a second signal
    } else if (hosts_ != nullptr && stop_signal_ == 0) {
      hosts_->Stop(signal);
    }
    if (stop_signal_ == 0) stop_signal_ = signal;
    if (stage_ == Stage::kKilled || stage_ == Stage::kGivenUp) continue;
    if (stage_ != Stage::kRunning || signal == SIGKILL) {
      Enter(Stage::kKilled, SIGKILL);
    } else {
      Enter(signal == SIGTERM ? Stage::kTerminated : Stage::kAsked, signal);
    }
  }
}

void Supervisor::ReapRanks() {
  std::optional<std::size_t> failure;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    RankProcess& rank = ranks_[i];
    if (rank.ended) continue;
    int wait_status = 0;
    const pid_t pid = waitpid(rank.pid, &wait_status, WNOHANG);
    if (pid == 0 || (pid < 0 && errno == EINTR)) continue;
    rank.ended = true;
    rank.pid_fd.Close();
    rank.exit.stopped = stage_ != Stage::kRunning;
    if (pid == rank.pid) {
      Record(wait_status, rank.exit);
    } else {
      rank.exit.code = kUnknownCode;
    }
    // Of ranks that failed at the same moment, one that a signal ended is the more likely cause.
    const bool is_cause =
        rank.exit.code != 0 &&
        (!failure || (rank.exit.signal != 0 && ranks_[*failure].exit.signal == 0));
    if (is_cause) failure = i;
  }
  if (failure && !first_failure_ && !timed_out_ && !stopped_by_host_) {
    first_failure_ = failure;
    failed_after_ = SystemClock().now() - start_;
    if (stop_signal_ == 0) TellHosts(ranks_[*failure].exit.code, DescribeFirstFailure());
  }
}

void Supervisor::FollowGroups() {
  for (RankProcess& rank : ranks_) {
    if (!rank.ended || rank.group_gone) continue;
    if (!GroupIsAlive(rank.pid)) {
      rank.group_gone = true;
      guard_.Forget(rank.pid);
    } else if (rank.leftovers == Leftovers::kNone) {
      kill(-rank.pid, SIGTERM);
      rank.leftovers = Leftovers::kTerminated;
      rank.leftovers_until = Deadline::After(options_.grace);
    } else if (rank.leftovers_until.expired() && rank.leftovers == Leftovers::kTerminated) {
      kill(-rank.pid, SIGKILL);
      rank.leftovers = Leftovers::kKilled;
      rank.leftovers_until = Deadline::After(kUnkillable);
    } else if (rank.leftovers_until.expired()) {
      rank.group_gone = rank.unkillable = true;
    }
  }
}

LaunchResult Supervisor::Conclude(Duration wall_time) {
  LaunchResult result;
  result.wall_time = wall_time;
  if (first_failure_) result.first_failure = GlobalRank(*first_failure_);
  for (RankProcess& rank : ranks_) {
    rank.exit.last_errors = rank.errors.Lines();
    result.ranks.push_back(rank.exit);
  }
  std::string failure;
  if (first_failure_) {
    result.exit_code = result.ranks[*first_failure_].code;
    failure = DescribeFirstFailure();
  }
  std::string left;
  for (const RankProcess& rank : ranks_) {
    if (rank.unkillable) left += StrCat(left.empty() ? "" : ", ", rank.pid);
  }
  if (!left.empty()) {
    if (result.exit_code == 0) result.exit_code = 128 + SIGKILL;
    result.status = InternalError("processes of groups ", left,
                                  " do not end even by KILL: they wait "
                                  "in the kernel, for a disk or a device; ",
                                  failure);
  } else if (timed_out_) {
    result.exit_code = kTimeoutCode;
    result.status = DeadlineExceededError("the run did not end within its time-out of ",
                                          Seconds(options_.timeout), " and was stopped");
  } else if (stop_signal_ != 0 && first_failure_) {
    result.status =
        CancelledError("the run was stopped by ", SignalName(stop_signal_), "; ", failure);
  } else if (first_failure_) {
    result.status = AbortedError(failure);
  }
  if (hosts_ != nullptr) ConcludeHosts(result);
  return result;
}

// What came first on any host is the result on all of them.
void Supervisor::ConcludeHosts(LaunchResult& result) {
  hosts_->AwaitEnd(wake_);
  const std::optional<HostGroup::Failure> first = hosts_->first_failure();
  if (!first || first->host == options_.hosts.index) return;
  result.exit_code = first->code;
  result.first_failure = first->rank;
  if (first->rank) {
    result.status = AbortedError(first->text);
  } else if (first->code == kTimeoutCode) {
    result.status = DeadlineExceededError(first->text);
  } else {
    result.status = UnavailableError(first->text);
  }
}

Rank Supervisor::GlobalRank(std::size_t index) const {
  return Rank(plan_.first_rank + static_cast<int>(index));
}

std::string Supervisor::DescribeFirstFailure() const {
  const RankExit& exit = ranks_[*first_failure_].exit;
  return StrCat("rank ", GlobalRank(*first_failure_), " of ", plan_.world_size, " (pid ", exit.pid,
                ") ", Describe(exit), " after ", Seconds(failed_after_));
}

void Supervisor::TellHosts(int code, std::string text) {
  if (hosts_ == nullptr) return;
  hosts_->Fail(
      {.host = options_.hosts.index,
       .code = code,
       .rank = first_failure_ ? std::optional<Rank>(GlobalRank(*first_failure_)) : std::nullopt,
       .text = std::move(text)});
}

}  // namespace ait::inline v0::internal

namespace ait::inline v0 {

std::string Describe(const RankExit& exit) {
  if (exit.signal != 0) return "was ended by " + internal::SignalName(exit.signal);
  return StrCat("exited with code ", exit.code);
}

}  // namespace ait::inline v0

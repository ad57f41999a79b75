// SPDX-License-Identifier: Apache-2.0
#include "comm/world_agent.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <random>
#include <sstream>
#include <string>
#include <thread>

#include "comm/tcp_store_socket.h"

namespace ait::inline v0::internal {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kPause{20};
// Rank 0 of an attempt that is over may hang: after this long without a word from it, a newer
// meeting is looked for.
constexpr milliseconds kOneAttempt{5000};

/// What rank 0 publishes: "address port restart-count attempt-id".
struct Meeting {
  std::string address;
  std::uint16_t port = 0;
  int restart_count = 0;
  std::string attempt;
};

std::string RandomId() {
  std::random_device device;
  std::ostringstream text;
  text << std::hex << device() << device() << '-' << getpid();
  return text.str();
}

std::string Prefix(const LaunchInfo& launch) { return StrCat("ait/", launch.run_id, "/"); }

TcpStoreOptions OptionsOf(const LaunchInfo& launch, const Meeting& meeting, milliseconds timeout,
                          LogSink* log) {
  return {.rank = launch.rank,
          .size = launch.size,
          .host = meeting.address,
          .port = meeting.port,
          .run_id = meeting.attempt,
          .timeout = timeout,
          .log = log};
}

StatusOr<std::unique_ptr<TcpStore>> Serve(Store& agent, LaunchInfo& launch, milliseconds timeout,
                                          LogSink* log) {
  const bool one_host = launch.local_size == launch.size;
  AIT_ASSIGN_OR_RETURN(const std::string address,
                       AddressTowards(launch.master_address, launch.master_port));
  AIT_ASSIGN_OR_RETURN(SocketFd listener, Listen(one_host ? address : "", 0));
  AIT_ASSIGN_OR_RETURN(const std::uint16_t port, LocalPort(listener.get()));
  const Meeting meeting{address, port, launch.restart_count, RandomId()};
  // The place first, then the number that leads to it: who sees the number finds the place.
  AIT_ASSIGN_OR_RETURN(const std::int64_t last, agent.Add(Prefix(launch) + "generation", 0));
  const std::string key = StrCat(Prefix(launch), "meeting/", last + 1);
  AIT_RETURN_IF_ERROR(agent.Set(key, StrCat(meeting.address, " ", meeting.port, " ",
                                            meeting.restart_count, " ", meeting.attempt)));
  AIT_RETURN_IF_ERROR(agent.Add(Prefix(launch) + "generation", 1).status());
  launch.run_id = meeting.attempt;
  TcpStoreOptions options = OptionsOf(launch, meeting, timeout, log);
  options.listen_fd = listener.Release();
  return TcpStore::Create(options);
}

StatusOr<Meeting> ReadMeeting(Store& agent, const std::string& key, Deadline deadline) {
  AIT_ASSIGN_OR_RETURN(const std::string text, agent.Get(key, deadline));
  Meeting meeting;
  std::istringstream fields(text);
  if (!(fields >> meeting.address >> meeting.port >> meeting.restart_count >> meeting.attempt)) {
    return DataLossError("the agent's store holds \"", text, "\" under ", key);
  }
  return meeting;
}

StatusOr<std::unique_ptr<TcpStore>> Find(Store& agent, LaunchInfo& launch, Deadline deadline,
                                         LogSink* log) {
  const bool one_host = launch.local_size == launch.size;
  Status last = DeadlineExceededError("rank 0 has published no address in the agent's store");
  std::string refused;  // the attempt that is over, or is not ours: only a newer one can be
  for (; !deadline.expired(); std::this_thread::sleep_for(kPause)) {
    AIT_ASSIGN_OR_RETURN(const std::int64_t generation,
                         agent.Add(Prefix(launch) + "generation", 0));
    if (generation == 0) continue;
    AIT_ASSIGN_OR_RETURN(
        const Meeting meeting,
        ReadMeeting(agent, StrCat(Prefix(launch), "meeting/", generation), deadline));
    // On one host all ranks have the same count, so an older one is a meeting that is over.
    if (one_host && meeting.restart_count != launch.restart_count) continue;
    if (meeting.attempt == refused) continue;
    // Rank 0 of an attempt that is over does not answer, or another process has its port by now.
    if (const auto probe = ConnectOnce(meeting.address, meeting.port, deadline); !probe.ok()) {
      last = probe.status();
      continue;
    }
    const auto left = std::max(std::chrono::ceil<milliseconds>(deadline.remaining()), kPause);
    TcpStoreOptions options = OptionsOf(launch, meeting, left, log);
    options.answer_timeout = kOneAttempt;
    auto store = TcpStore::Create(options);
    if (store.ok()) {
      launch.run_id = meeting.attempt;
      return store;
    }
    last = store.status();
    switch (last.code()) {
      case StatusCode::kFailedPrecondition:
      case StatusCode::kUnavailable:
        refused = meeting.attempt;
        break;
      case StatusCode::kDeadlineExceeded:
        if (deadline.expired()) return last;
        break;
      default:
        return last;
    }
  }
  return DeadlineExceededError("rank ", launch.rank, " did not find rank 0 through the store of ",
                               "torchrun's agent in time: ", Message(last));
}

}  // namespace

StatusOr<std::unique_ptr<TcpStore>> JoinThroughAgent(Store& agent, LaunchInfo& launch,
                                                     milliseconds timeout, LogSink* log) {
  if (launch.rank == Rank(0)) return Serve(agent, launch, timeout, log);
  return Find(agent, launch, Deadline::After(timeout), log);
}

}  // namespace ait::inline v0::internal

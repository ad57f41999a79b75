// SPDX-License-Identifier: Apache-2.0
// shared_memory_rank KIND arena|foreign PHASE kill|stop|none TIMEOUT_MS: a rank that runs one kind of
// collective again and again until it fails; rank 1 kills or stops itself in that phase of the fifth.
//
// Prints "started", then the error and how long the failed operation took; then makes the group of the
// survivors and prints what it sums. Kind "storm" runs collectives of all kinds until it fails.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ait/comm/communicator.h"
#include "ait/comm/shared_memory.h"
#include "ait/comm/tcp_store.h"
#include "ait/comm/world.h"
#include "ait/memory/buffer.h"
#include "comm/shm_ranks.h"

namespace ait {
namespace {

constexpr std::int64_t kCount = 60'000;  // elements of a part: several chunks where staged

const std::map<std::string, internal::ShmPhase> kPhases = {
    {"arriving", internal::ShmPhase::kArriving},
    {"arrived", internal::ShmPhase::kArrived},
    {"met", internal::ShmPhase::kMet},
    {"ran", internal::ShmPhase::kRan},
    {"done", internal::ShmPhase::kDone}};
constexpr std::array kKinds = {"all-reduce", "reduce-scatter", "all-gather", "broadcast",
                               "all-to-all", "gather",         "scatter",    "barrier"};

Work Start(Communicator& group, const std::string& kind, Buffer whole, Buffer other) {
  const int rank = group.rank().value();
  const Buffer part = whole.Slice(rank * kCount, kCount);
  if (kind == "all-reduce") return group.AllReduce(whole, ReduceOp::kSum);
  if (kind == "reduce-scatter") return group.ReduceScatter(whole, part, ReduceOp::kSum);
  if (kind == "all-gather") return group.AllGather(part, whole);
  if (kind == "broadcast") return group.Broadcast(whole, Rank(0));
  if (kind == "all-to-all") return group.AllToAll(whole, other);
  if (kind == "gather") return group.Gather(part, whole, Rank(0));
  if (kind == "scatter") return group.Scatter(whole, part, Rank(0));
  return group.Barrier();
}

int Fail(const Status& status) {
  std::printf("%s\n", status.ToString().c_str());
  return 1;
}

int Run(const std::vector<std::string>& args) {
  const std::string& kind = args[0];
  const bool in_arena = args[1] == "arena";
  const std::chrono::milliseconds timeout(std::stoi(args[4]));
  const std::chrono::milliseconds join =
      std::max<std::chrono::milliseconds>(timeout, std::chrono::seconds(5));
  auto launch = LaunchInfo::FromEnv(Env::FromProcess());
  if (!launch.ok()) return Fail(launch.status());
  auto store = TcpStore::Create({.rank = launch->rank,
                                 .size = launch->size,
                                 .host = launch->master_address,
                                 .port = launch->master_port,
                                 .listen_fd = launch->listen_fd,
                                 .run_id = launch->run_id,
                                 .timeout = join});
  if (!store.ok()) return Fail(store.status());
  auto transport = JoinSharedMemory(**store, "test", launch->rank, launch->size,
                                    Deadline::After(join), {.staging = KiB(256)});
  if (!transport.ok()) return Fail(transport.status());
  int operations = 0;
  if (launch->rank == Rank(1) && args[3] != "none") {
    const internal::ShmPhase fatal = kPhases.at(args[2]);
    const int signal = args[3] == "kill" ? SIGKILL : SIGSTOP;
    internal::SetPhaseHook(**transport, [&operations, fatal, signal](internal::ShmPhase phase) {
      if (phase == fatal && operations == 5) kill(getpid(), signal);
    });
  }
  Communicator group(*std::move(transport), {.timeout = timeout});
  const std::size_t bytes = static_cast<std::size_t>(group.size().value() * kCount) * sizeof(float);
  auto arena = HostBuffer::Create(group.memory(), 2 * bytes);
  if (!arena.ok()) return Fail(arena.status());
  std::vector<float> heap(2 * bytes / sizeof(float), 1.0f);
  std::memset(arena->data(), 0, 2 * bytes);
  const Buffer all{in_arena ? static_cast<void*>(arena->data()) : heap.data(),
                   static_cast<std::int64_t>(2 * bytes / sizeof(float)), DType::kFloat32};
  const Buffer whole = all.Slice(0, all.count / 2);
  const Buffer other = all.Slice(all.count / 2, all.count / 2);
  group.Note(812, "backward");

  Status status;
  Time start;
  std::printf("started\n");
  std::fflush(stdout);
  const bool ends = kind != "storm" && args[3] != "kill" && timeout > std::chrono::seconds(10);
  const int most = ends ? 10 : 1'000'000;
  while (status.ok() && operations < most) {
    ++operations;
    const std::string now =
        kind == "storm" ? kKinds[static_cast<std::size_t>(operations) % kKinds.size()] : kind;
    start = SystemClock().now();
    status = Start(group, now, whole, other).Wait();
  }
  const auto took =
      std::chrono::duration_cast<std::chrono::milliseconds>(SystemClock().now() - start);
  std::printf("%s\ntook %lld ms\n", status.ToString().c_str(),
              static_cast<long long>(took.count()));
  std::fflush(stdout);
  if (status.ok() || status.code() == StatusCode::kDeadlineExceeded) return status.ok() ? 0 : 3;
  auto survivors = group.Survivors();
  if (!survivors.ok()) return Fail(survivors.status());
  std::int64_t sum = 1;
  if (Status last = (*survivors)->AllReduce(View(std::span(&sum, 1)), ReduceOp::kSum).Wait();
      !last.ok()) {
    return Fail(last);
  }
  std::printf("%lld survivors\n", static_cast<long long>(sum));
  return 3;
}

}  // namespace
}  // namespace ait

int main(int argc, char** argv) { return ait::Run({argv + 1, argv + argc}); }

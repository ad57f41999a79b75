// SPDX-License-Identifier: Apache-2.0
// bench_hosts [RATE=1gbit] [ROUNDS=9] [CHUNK=KiB]: all-reduce of 25 MiB of float32 over two hosts of
// two ranks.
//
// The hosts are network namespaces with a link of RATE each (tests/support/network_hosts.h): needs
// root. In every round the hierarchical transport, with fp32 and with bf16 on the wire, ait's flat
// Gloo and c10d's Gloo over the four ranks, and the link take turns; medians are compared. The link is
// measured by plain TCP connections that move, both ways at once, what the hierarchical all-reduce
// must: S bytes a host and direction, 2·S·(H - 1)/H for two hosts. "limit_ratio" is of that.
#include <ATen/core/ivalue.h>
// Keep the order.
#include <ATen/ATen.h>
#include <arpa/inet.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <vector>

#include "ait/comm/hierarchical.h"
#include "ait/comm/shared_memory.h"
#include "ait/comm/tcp_store.h"
#include "ait/comm/transport.h"
#include "ait/memory/buffer.h"
#include "ait/tensor/gloo.h"
#include "support/network_hosts.h"
#include "support/report.h"
#include "tensor/gloo_store.h"

extern char** environ;

namespace ait::benchmarks {
namespace {

constexpr int kHosts = 2;
constexpr int kLocal = 2;
constexpr std::int64_t kBytes = std::int64_t{25} << 20;
constexpr std::uint16_t kPort = 29411, kLinkPort = 29412;

double CpuMilliseconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) * 1e3 + static_cast<double>(used.tv_nsec) / 1e6;
}

/// The plain connections between the first ranks of the two hosts.
class Link {
 public:
  /// Both ends; `is_server` listens. Two connections, as two local ranks have.
  static std::unique_ptr<Link> Open(bool is_server, const std::string& address) {
    auto link = std::make_unique<Link>();
    sockaddr_in place{};
    place.sin_family = AF_INET;
    place.sin_port = htons(kLinkPort);
    inet_pton(AF_INET, address.c_str(), &place.sin_addr);
    const auto* target = reinterpret_cast<const sockaddr*>(&place);
    if (is_server) {
      const int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
      setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
      if (bind(listener, target, sizeof(place)) != 0 || listen(listener, 4) != 0) return nullptr;
      for (int& fd : link->fds_) fd = accept(listener, nullptr, nullptr);
      close(listener);
    } else {
      for (int& fd : link->fds_) {
        fd = socket(AF_INET, SOCK_STREAM, 0);
        for (int tries = 0; connect(fd, target, sizeof(place)) != 0; ++tries) {
          if (tries == 200) return nullptr;
          std::this_thread::sleep_for(std::chrono::milliseconds(50));
        }
      }
    }
    return link;
  }

  /// Sends and receives `bytes` at once.
  bool Exchange(std::int64_t bytes) {
    std::vector<std::thread> threads;
    std::atomic<bool> good{true};
    const std::int64_t each = bytes / std::ssize(fds_);
    for (const int fd : fds_) {
      threads.emplace_back([&, fd] {
        for (std::int64_t at = 0; at < each && good;) {
          const auto n =
              send(fd, memory_.data(),
                   static_cast<std::size_t>(std::min<std::int64_t>(each - at, std::ssize(memory_))),
                   MSG_NOSIGNAL);
          if (n <= 0) good = false;
          at += n;
        }
      });
      threads.emplace_back([&, fd] {
        std::vector<char> place(memory_.size());
        for (std::int64_t at = 0; at < each && good;) {
          const auto n = recv(
              fd, place.data(),
              static_cast<std::size_t>(std::min<std::int64_t>(each - at, std::ssize(place))), 0);
          if (n <= 0) good = false;
          at += n;
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return good;
  }

 private:
  std::array<int, kLocal> fds_{};
  std::vector<char> memory_ = std::vector<char>(std::size_t{1} << 20, 'x');
};

/// One rank: what it measures with.
struct Bench {
  int rank = 0;
  std::shared_ptr<TcpStore> store;
  std::unique_ptr<Communicator> flat, exact, rounded;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> c10d;
  std::unique_ptr<Link> link;  // of the first rank of each host
};

StatusOr<std::unique_ptr<Communicator>> MakeHierarchy(Transport& flat, const Bench& bench,
                                                      std::uint64_t id, WirePrecision wire,
                                                      Bytes chunk, Deadline deadline) {
  const int host = bench.rank / kLocal;
  std::vector<Rank> all;
  for (int r = 0; r < kHosts * kLocal; ++r) all.push_back(Rank(r));
  HostGroups groups{
      .host_of_rank = {0, 0, 1, 1}, .store = bench.store, .key = StrCat("bench/", id)};
  AIT_ASSIGN_OR_RETURN(groups.between, flat.Subgroup(all, id, deadline));
  AIT_ASSIGN_OR_RETURN(groups.inside,
                       JoinSharedMemory(*bench.store, StrCat("bench/", id, "/", host),
                                        Rank(bench.rank % kLocal), WorldSize(kLocal), deadline));
  AIT_ASSIGN_OR_RETURN(auto made,
                       JoinHosts(std::move(groups), deadline, {.wire = wire, .chunk = chunk}));
  return std::make_unique<Communicator>(std::move(made));
}

StatusOr<Bench> Join(const Report& report) {
  const Deadline deadline = Deadline::After(std::chrono::minutes(1));
  AIT_ASSIGN_OR_RETURN(const LaunchInfo launch, LaunchInfo::FromEnv(Env::FromProcess()));
  Bench bench{.rank = launch.rank.value()};
  AIT_ASSIGN_OR_RETURN(bench.store, TcpStore::Create({.rank = launch.rank,
                                                      .size = launch.size,
                                                      .host = launch.master_address,
                                                      .port = launch.master_port}));
  AIT_ASSIGN_OR_RETURN(auto flat, Gloo()->Connect(launch, bench.store, deadline));
  const Bytes chunk = KiB(std::stoll(report.Setting("CHUNK", "4096")));
  AIT_ASSIGN_OR_RETURN(bench.exact,
                       MakeHierarchy(*flat, bench, 1001, WirePrecision::kExact, chunk, deadline));
  AIT_ASSIGN_OR_RETURN(bench.rounded,
                       MakeHierarchy(*flat, bench, 1002, WirePrecision::kBf16, chunk, deadline));
  bench.flat = std::make_unique<Communicator>(std::move(flat));
  auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::seconds(60));
  options->devices.push_back(
      c10d::ProcessGroupGloo::createDeviceForHostname(bench.store->local_address()));
  bench.c10d = c10::make_intrusive<c10d::ProcessGroupGloo>(
      internal::MakeC10dStore(bench.store, "c10d/", {}, Deadline::Infinite()), bench.rank,
      kHosts * kLocal, options);
  if (bench.rank % kLocal == 0) {
    bench.link = Link::Open(bench.rank == 0, launch.master_address);
    if (bench.link == nullptr) return UnavailableError("the link could not be opened");
  }
  return bench;
}

/// Time of one call, from the moment when all ranks are ready.
struct Samples {
  std::vector<double> ms, cpu_ms;
  void Take(Communicator& meet, const std::function<void()>& call) {
    meet.Barrier().Wait().IgnoreError();
    const double cpu = CpuMilliseconds();
    const auto begin = std::chrono::steady_clock::now();
    call();
    const std::chrono::duration<double, std::milli> time = std::chrono::steady_clock::now() - begin;
    ms.push_back(time.count());
    cpu_ms.push_back(CpuMilliseconds() - cpu);
  }
};

int RunRank(int argc, char** argv) {
  Report report(argc, argv);
  StatusOr<Bench> joined = Join(report);
  if (!joined.ok()) {
    std::fprintf(stderr, "%s\n", joined.status().ToString().c_str());
    return 1;
  }
  Bench& bench = *joined;
  bool good = true;
  const auto floats = static_cast<std::size_t>(kBytes / 4);
  const auto fill = [&](std::span<float> x) {  // sums that bf16 holds too
    std::fill(x.begin(), x.end(), static_cast<float>(1 + bench.rank));
  };
  const auto check = [&](std::span<const float> x, const char* what) {
    const auto wrong =
        std::count_if(x.begin(), x.end(), [](float value) { return value != 10.0f; });
    if (wrong == 0) return;
    std::fprintf(stderr, "rank %d: %s: %lld wrong\n", bench.rank, what,
                 static_cast<long long>(wrong));
    good = false;
  };
  const auto reduce = [&](Communicator& communicator, Samples& samples, const char* what) {
    const MemoryHandle arena = communicator.memory();
    std::vector<float> heap(arena ? 0 : floats);
    HostBuffer shared;
    if (arena) {
      auto made = HostBuffer::Create(arena, floats * sizeof(float));
      if (!made.ok()) {
        std::fprintf(stderr, "%s\n", made.status().ToString().c_str());
        good = false;
        return;
      }
      shared = *std::move(made);
    }
    const std::span<float> x = arena ? shared.As<float>() : std::span<float>(heap);
    fill(x);
    samples.Take(*bench.flat, [&] {
      const Status status = communicator.AllReduce(View(x), ReduceOp::kSum).Wait();
      if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
      good = good && status.ok();
    });
    check(x, what);
  };
  Samples exact, rounded, flat, c10d, link;
  std::vector<at::Tensor> tensors{at::zeros({kBytes / 4})};
  const int rounds = std::stoi(report.Setting("ROUNDS", "9"));
  for (int round = 0; round <= rounds; ++round) {
    reduce(*bench.exact, exact, "hierarchical");
    reduce(*bench.flat, flat, "flat");
    reduce(*bench.rounded, rounded, "bf16");
    tensors[0].fill_(1 + bench.rank);
    c10d.Take(*bench.flat, [&] { bench.c10d->allreduce(tensors)->wait(); });
    check({tensors[0].data_ptr<float>(), floats}, "c10d");
    link.Take(*bench.flat, [&] { good = good && (!bench.link || bench.link->Exchange(kBytes)); });
    if (round > 0) continue;  // the first warms up
    for (Samples* samples : {&exact, &rounded, &flat, &c10d, &link}) *samples = {};
  }
  const double limit = Median(link.ms);
  if (bench.rank == 0) {
    const double ours = Median(exact.ms);
    report.AddTime(
        "hosts/all_reduce/25MiB/link",
        {.ms = ours, .baseline = "TCP, S each way", .baseline_ms = limit, .limit_ms = limit});
    report.AddTime("hosts/all_reduce/25MiB/gloo", {.ms = ours,
                                                   .baseline = "ait Gloo, flat",
                                                   .baseline_ms = Median(flat.ms),
                                                   .limit_ms = limit});
    report.AddTime("hosts/all_reduce/25MiB/c10d-gloo", {.ms = ours,
                                                        .baseline = "c10d Gloo, flat",
                                                        .baseline_ms = Median(c10d.ms),
                                                        .limit_ms = limit});
    report.AddTime("hosts/all_reduce/25MiB/bf16-wire", {.ms = Median(rounded.ms),
                                                        .baseline = "fp32 on the wire",
                                                        .baseline_ms = ours,
                                                        .limit_ms = limit / 2});
    std::printf(
        "time of a core on rank 0, ms: hierarchical %.0f, bf16 %.0f, flat %.0f, c10d %.0f, "
        "link %.0f\n",
        Median(exact.cpu_ms), Median(rounded.cpu_ms), Median(flat.cpu_ms), Median(c10d.cpu_ms),
        Median(link.cpu_ms));
  }
  bench.flat->Barrier().Wait().IgnoreError();
  const int code = bench.rank == 0 ? report.Finish() : 0;
  return good ? code : 1;
}

int RunRanks(int argc, char** argv) {
  const std::string rate = Report(argc, argv).Setting("RATE", "1gbit");
  auto hosts = testing::NetworkHosts::Create(kHosts, rate);
  if (!hosts.ok()) {
    std::printf("bench_hosts measures nothing here: %s\n", Message(hosts.status()).c_str());
    return 0;
  }
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof(self));
  if (length <= 0) return 1;
  setenv("WORLD_SIZE", std::to_string(kHosts * kLocal).c_str(), 1);
  setenv("LOCAL_WORLD_SIZE", std::to_string(kLocal).c_str(), 1);
  setenv("MASTER_ADDR", hosts->address(0).c_str(), 1);
  setenv("MASTER_PORT", std::to_string(kPort).c_str(), 1);
  setenv("OMP_NUM_THREADS", "1", 1);
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < kHosts * kLocal; ++rank) {
    setenv("RANK", std::to_string(rank).c_str(), 1);
    setenv("LOCAL_RANK", std::to_string(rank % kLocal).c_str(), 1);
    std::vector<std::string> words = hosts->Command(rank / kLocal);
    words.emplace_back(self, static_cast<std::size_t>(length));
    for (int i = 1; i < argc; ++i) words.emplace_back(argv[i]);
    std::vector<char*> arguments;
    for (std::string& word : words) arguments.push_back(word.data());
    arguments.push_back(nullptr);
    pid_t pid = 0;
    if (posix_spawn(&pid, arguments[0], nullptr, nullptr, arguments.data(), environ) != 0) return 1;
    ranks.push_back(pid);
  }
  int worst = 0;
  for (const pid_t pid : ranks) {
    int status = 0;
    waitpid(pid, &status, 0);
    worst = std::max(worst, WIFEXITED(status) ? WEXITSTATUS(status) : 1);
  }
  return worst;
}

}  // namespace
}  // namespace ait::benchmarks

int main(int argc, char** argv) {
  const bool is_rank = std::getenv("RANK") != nullptr;
  return is_rank ? ait::benchmarks::RunRank(argc, argv) : ait::benchmarks::RunRanks(argc, argv);
}

// SPDX-License-Identifier: Apache-2.0
// bench_gloo [RANKS=N] [SEGMENT=KiB]: all-reduce of float32 between two processes over the loopback
// interface, by our Gloo transport and by c10d's, which share the interface and take turns.
//
// The program starts itself as the ranks of a run. Both are timed as a training step meets them:
// data in memory that is in use, one operation at a time; the median of many. "all_reduce_cpu" is the
// time of cores that rank 0's process spends, which a backward pass beside it would miss.
#include <ATen/core/ivalue.h>
// Keep the order.
#include <ATen/ATen.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <vector>

#include "ait/comm/tcp_store.h"
#include "ait/launch/launcher.h"
#include "ait/tensor/gloo.h"
#include "support/report.h"
#include "tensor/gloo_store.h"

namespace ait::benchmarks {
namespace {

using Milliseconds = std::chrono::duration<double, std::milli>;

/// What one way of reducing takes, call by call: time, and time of a core in this process.
struct Times {
  std::vector<double> ms, cpu_ms;

  void Measure(const std::function<void()>& work) {
    const double cpu = CpuMilliseconds();
    const auto begin = std::chrono::steady_clock::now();
    work();
    ms.push_back(Milliseconds(std::chrono::steady_clock::now() - begin).count());
    cpu_ms.push_back(CpuMilliseconds() - cpu);
  }
  static double CpuMilliseconds() {
    timespec used{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return static_cast<double>(used.tv_sec) * 1e3 + static_cast<double>(used.tv_nsec) / 1e6;
  }
};

c10::intrusive_ptr<c10d::ProcessGroupGloo> C10dGroup(World& world,
                                                     std::shared_ptr<TcpStore> store) {
  auto options = c10d::ProcessGroupGloo::Options::create(std::chrono::seconds(60));
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(
      internal::MakeC10dStore(std::move(store), "c10d/", {}, Deadline::Infinite()),
      world.rank().value(), world.size().value(), options);
}

std::string SizeName(std::int64_t bytes) {
  return bytes >= 1 << 20 ? StrCat(bytes >> 20, "MiB") : StrCat(bytes >> 10, "KiB");
}

int RunRank(int argc, char** argv) {
  Report report(argc, argv);
  const std::int64_t segment = std::stoll(report.Setting("SEGMENT", "0"));
  GlooOptions options;
  if (segment > 0) options.segment = KiB(segment);
  auto world = World::FromEnvironment({.transport = Gloo(options)});
  if (!world.ok()) {
    std::fprintf(stderr, "%s\n", world.status().ToString().c_str());
    return 1;
  }
  // Lives as long as the world, which owns it.
  const std::shared_ptr<TcpStore> store((*world)->store(), [](TcpStore*) {});
  const auto c10d_group = C10dGroup(**world, store);
  Communicator& communicator = *(*world)->communicator();
  bool failed = false;
  for (const Bytes size : {KiB(4), KiB(64), KiB(256), MiB(1), MiB(4), MiB(25), MiB(64)}) {
    const std::int64_t bytes = size.value();
    at::Tensor ours = at::zeros({bytes / 4}), theirs = at::zeros({bytes / 4});
    const Buffer buffer{ours.data_ptr(), ours.numel(), DType::kFloat32};
    const auto run_ours = [&] {
      failed |= !communicator.AllReduce(buffer, ReduceOp::kSum).Wait().ok();
    };
    std::vector<at::Tensor> tensors{theirs};
    const auto run_theirs = [&] { c10d_group->allreduce(tensors)->wait(); };
    const int rounds = static_cast<int>(std::max<std::int64_t>(15, (32 << 20) / bytes / 4));
    Times our_times, their_times;
    for (int round = 0; round < std::min(rounds, 1000); ++round) {
      our_times.Measure(run_ours);
      their_times.Measure(run_theirs);
    }
    if ((*world)->rank() == Rank(0)) {
      report.AddTime(StrCat("all_reduce/", SizeName(bytes), "/c10d-gloo"),
                     {.ms = Median(our_times.ms),
                      .baseline = "c10d Gloo",
                      .baseline_ms = Median(their_times.ms)});
      report.AddTime(StrCat("all_reduce_cpu/", SizeName(bytes), "/c10d-gloo"),
                     {.ms = Median(our_times.cpu_ms),
                      .baseline = "c10d Gloo",
                      .baseline_ms = Median(their_times.cpu_ms)});
    }
  }
  if (failed) std::fprintf(stderr, "an all-reduce failed\n");
  const int code = (*world)->rank() == Rank(0) ? report.Finish() : 0;
  return failed ? 1 : code;
}

int RunRanks(int argc, char** argv) {
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof(self));
  if (length <= 0) return 1;
  LaunchOptions options;
  options.command.emplace_back(self, static_cast<std::size_t>(length));
  for (int i = 1; i < argc; ++i) options.command.emplace_back(argv[i]);
  options.world_size = WorldSize(std::stoi(Report(argc, argv).Setting("RANKS", "2")));
  auto launcher = Launcher::Create(std::move(options));
  if (!launcher.ok()) {
    std::fprintf(stderr, "%s\n", launcher.status().ToString().c_str());
    return 1;
  }
  const auto result = launcher->Run();
  return result.ok() ? result->exit_code : 1;
}

}  // namespace
}  // namespace ait::benchmarks

int main(int argc, char** argv) {
  return std::getenv("AIT_RUN_ID") != nullptr ? ait::benchmarks::RunRank(argc, argv)
                                              : ait::benchmarks::RunRanks(argc, argv);
}

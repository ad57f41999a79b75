// SPDX-License-Identifier: Apache-2.0
// What a communicator adds to an operation before and after its transport: checks, deadline, flight
// record. Beside it the time of looking at the clock once, which is part of it.
//
//   bench_issue [--json FILE]
//
// The transport does nothing and is over at once.

#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "ait/comm/communicator.h"
#include "ait/comm/flight_recorder.h"
#include "ait/comm/transport.h"
#include "support/report.h"

namespace ait::benchmarks {
namespace {

class NullTransport final : public Transport {
 public:
  std::string_view name() const override { return "null"; }
  Rank rank() const override { return Rank(0); }
  WorldSize size() const override { return WorldSize(2); }
  Work Start(Operation) override { return Work(); }
  StatusOr<std::unique_ptr<Transport>> Subgroup(std::span<const Rank>, std::uint64_t,
                                                Deadline) override {
    return std::make_unique<NullTransport>();
  }
  void Abort(const Status&) override {}
};

/// Nanoseconds of one call: the median of rounds.
template <typename Function>
double Nanoseconds(Function function) {
  constexpr int kCalls = 100000;
  std::vector<double> rounds;
  for (int round = 0; round < 15; ++round) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) function();
    const std::chrono::duration<double, std::nano> ns = std::chrono::steady_clock::now() - begin;
    rounds.push_back(ns.count() / kCalls);
  }
  return Median(rounds);
}

int Main(int argc, char** argv) {
  Report report(argc, argv);
  Communicator communicator(std::make_unique<NullTransport>());
  std::vector<float> x(1024);
  const Buffer all = View(x);
  const Buffer half = all.Slice(0, 512);
  const double clock = Nanoseconds([] {
    const auto now = std::chrono::steady_clock::now();
    asm volatile("" ::"r"(&now) : "memory");
  });
  const auto add = [&](std::string_view name, double ns) {
    report.AddTime(
        name, {.ms = ns * 1e-6, .baseline = "one look at the clock", .baseline_ms = clock * 1e-6});
  };
  add("issue/all_reduce",
      Nanoseconds([&] { communicator.AllReduce(all, ReduceOp::kSum).Wait().IgnoreError(); }));
  add("issue/all_reduce/label", Nanoseconds([&] {
        communicator.AllReduce(all, ReduceOp::kSum, {.label = "bucket 3"}).Wait().IgnoreError();
      }));
  add("issue/reduce_scatter", Nanoseconds([&] {
        communicator.ReduceScatter(all, half, ReduceOp::kSum).Wait().IgnoreError();
      }));
  const auto recorder = std::make_shared<FlightRecorder>();
  const auto group = recorder->AddGroup("world", {Rank(0), Rank(1)});
  const Operation operation{
      .kind = OperationKind::kAllReduce, .input = all, .output = all, .sequence = 1};
  const Time now = SystemClock().now();
  add("record/begin_and_end", Nanoseconds([&] {
        group->End(group->Begin(operation, now), OkStatus(), now, now).IgnoreError();
      }));
  add("record/note", Nanoseconds([&] { recorder->Note(812, "forward"); }));
  return report.Finish();
}

}  // namespace
}  // namespace ait::benchmarks

int main(int argc, char** argv) { return ait::benchmarks::Main(argc, argv); }

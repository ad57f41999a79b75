// SPDX-License-Identifier: Apache-2.0
// hang_rank MODE TIMEOUT_MS REPORT_AFTER_MS: one rank of the tests of hangs, over Gloo.
//
//   data      the last rank stays in its phase "data" of step 812 while the others reduce bucket 7
//   loop      steps with a small all-reduce, for ever
//   mismatch  the last rank reduces an element more than the others
//   survive   like loop; when the group breaks, goes on with the survivors
//
// Prints "ready" when all ranks are connected, and what the log says. An error is printed and gives
// exit code 3.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ait/base/log.h"
#include "ait/tensor/gloo.h"

namespace ait {
namespace {

void Say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

class Printer final : public LogSink {
 public:
  void Write(Severity, std::string_view component, std::string_view message) override {
    std::lock_guard lock(mutex_);
    Say(StrCat(component, ": ", message));
  }

 private:
  std::mutex mutex_;
};

/// Sums for ever; whenever the group breaks, with those who are left.
Status Survive(World& world) {
  std::shared_ptr<Communicator> group = world.communicator();
  const std::int64_t own = std::int64_t{1} << (8 * world.rank().value());  // who is in, by byte
  while (true) {
    Status status;
    std::int64_t sum = 0;
    for (int step = 0; status.ok(); ++step) {
      std::vector<std::int64_t> x(1000, own);
      status = group->AllReduce(View(x), ReduceOp::kSum, {.label = "bucket 7"}).Wait();
      for (const std::int64_t value : x)
        if (status.ok() && value != x[0]) status = InternalError("the sums differ");
      if (status.ok() && x[0] != sum) Say(StrCat("sum ", sum = x[0], " of ", group->size()));
    }
    Say(status.ToString());
    if (status.code() == StatusCode::kInternal) return status;
    AIT_ASSIGN_OR_RETURN(group, group->Survivors({.timeout = std::chrono::seconds(20)}));
  }
}

Status Run(const std::string& mode, std::chrono::milliseconds timeout,
           std::chrono::milliseconds report_after, LogSink* log) {
  AIT_ASSIGN_OR_RETURN(const std::unique_ptr<World> world,
                       World::FromEnvironment(
                           {.transport = Gloo(),
                            .communicator = {.timeout = timeout, .hang_report_after = report_after},
                            .log = log}));
  const std::shared_ptr<Communicator>& all = world->communicator();
  const bool is_last = world->rank().value() == world->size().value() - 1;
  all->Note(811, "forward");
  AIT_RETURN_IF_ERROR(all->Barrier().Wait());
  std::vector<float> x(1001, 1.0f);
  const auto reduce = [&](std::int64_t count) {
    return all->AllReduce(View(x).Slice(0, count), ReduceOp::kSum, {.label = "bucket 7"}).Wait();
  };
  if (mode == "data") {
    all->Note(812, is_last ? "data" : "reduce");
    Say("ready");
    if (is_last) std::this_thread::sleep_for(std::chrono::seconds(60));
    return reduce(1000);
  }
  Say("ready");
  if (mode == "mismatch") return reduce(is_last ? 1001 : 1000);
  if (mode == "survive") return Survive(*world);
  for (std::int64_t step = 812;; ++step) {
    all->Note(step, "reduce");
    AIT_RETURN_IF_ERROR(reduce(1000));
    all->Note(step, "data");
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
}

}  // namespace
}  // namespace ait

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "loop";
  const std::chrono::milliseconds timeout(argc > 2 ? std::atoi(argv[2]) : 30000);
  const std::chrono::milliseconds report_after(argc > 3 ? std::atoi(argv[3]) : 500);
  ait::Printer log;
  const ait::Status status = ait::Run(mode, timeout, report_after, &log);
  if (status.ok()) return 0;
  ait::Say(status.ToString());
  return 3;
}

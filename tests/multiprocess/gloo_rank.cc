// SPDX-License-Identifier: Apache-2.0
// gloo_rank MODE [TIMEOUT_MS [JOIN_TIMEOUT_MS]]: one rank of the tests of failures and of torchrun.
//
//   once        one all-reduce, then ends; prints the run id
//   loop        all-reduces of 4 MiB for ever
//   after       one all-reduce; when a rank has died, two more
//   exit        ends by exit() while an all-reduce waits for the others
//
// Prints "ready" when all ranks are connected. An error is printed and gives exit code 3.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "ait/comm/tcp_store.h"
#include "ait/tensor/gloo.h"

namespace ait {
namespace {

void Say(const std::string& line) {
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

Status Sum(World& world, std::int64_t count) {
  const int size = world.size().value();
  std::vector<float> x(static_cast<std::size_t>(count), static_cast<float>(world.rank().value()));
  AIT_RETURN_IF_ERROR(world.communicator()->AllReduce(View(x), ReduceOp::kSum).Wait());
  const auto expected = static_cast<float>(size * (size - 1) / 2);
  for (const float value : x) {
    if (value != expected) return InternalError("the sum is ", value, ", not ", expected);
  }
  return OkStatus();
}

Status Run(const std::string& mode, std::chrono::milliseconds timeout,
           std::chrono::milliseconds join_timeout) {
  AIT_ASSIGN_OR_RETURN(const std::unique_ptr<World> world,
                       World::FromEnvironment({.transport = Gloo(),
                                               .join_timeout = join_timeout,
                                               .communicator = {.timeout = timeout}}));
  AIT_RETURN_IF_ERROR(Sum(*world, 1000));
  Say("run " + world->launch().run_id);
  Say("ready");
  if (mode == "once") return OkStatus();
  if (mode == "exit") {
    std::vector<float> x(1000);
    // Rank 0 hears of it when the others' connections close.
    if (world->rank() == Rank(0)) {
      return world->communicator()->AllReduce(View(x), ReduceOp::kSum).Wait();
    }
    const Work work = world->communicator()->Barrier();
    std::exit(0);
  }
  if (mode == "after") {
    while (world->store()->departed().empty()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    const Status first = Sum(*world, 1000);
    Say("first: " + first.ToString());
    return Sum(*world, 1000);
  }
  while (true) AIT_RETURN_IF_ERROR(Sum(*world, 1 << 20));
}

}  // namespace
}  // namespace ait

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "once";
  const std::chrono::milliseconds timeout(argc > 2 ? std::atoi(argv[2]) : 30000);
  const std::chrono::milliseconds join_timeout(argc > 3 ? std::atoi(argv[3]) : 30000);
  const ait::Status status = ait::Run(mode, timeout, join_timeout);
  if (status.ok()) return 0;
  ait::Say(status.ToString());
  return 3;
}

// SPDX-License-Identifier: Apache-2.0
// A rank that joins the run over Gloo, does one all-reduce, and says when it was done. The twin of
// benchmarks/peers/startup.py.
#include <chrono>
#include <cstdio>
#include <vector>

#include "ait/comm/communicator.h"
#include "ait/comm/world.h"
#include "ait/tensor/gloo.h"

namespace {

ait::Status Run() {
  AIT_ASSIGN_OR_RETURN(const auto world, ait::World::FromEnvironment({.transport = ait::Gloo()}));
  std::vector<float> ones(1024, 1.0f);
  AIT_RETURN_IF_ERROR(
      world->communicator()->AllReduce(ait::View(ones), ait::ReduceOp::kSum).Wait());
  const auto now = std::chrono::steady_clock::now().time_since_epoch();
  if (ones.back() != static_cast<float>(world->size().value())) {
    return ait::InternalError("the sum of ones is ", ones.back());
  }
  if (world->rank() == ait::Rank(0)) {
    std::printf(
        "done %lld\n",
        static_cast<long long>(std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()));
  }
  return ait::OkStatus();
}

}  // namespace

int main() {
  const ait::Status status = Run();
  if (!status.ok()) std::fprintf(stderr, "startup_rank: %s\n", ait::Message(status).c_str());
  return status.ok() ? 0 : 1;
}

// SPDX-License-Identifier: Apache-2.0
// A rank of c10d_oracle_test: `c10d_rank BACKEND`. Compares DataParallel with c10d::Reducer over
// BACKEND: "ait" (ait's Gloo, as DataParallel), "shared_memory" (the same, with buckets in memory that
// the ranks share), or "gloo" (libtorch's ProcessGroupGloo). Prints the bits of the gradients.
#include "parallel/c10d_reducer.h"
// Keep the order.
#include <cstdio>
#include <string>

#include "ait/comm/shared_memory.h"
#include "ait/comm/tcp_store.h"
#include "ait/comm/world.h"
#include "ait/tensor/gloo.h"
#include "tensor/gloo_store.h"

namespace ait {
namespace {

StatusOr<C10dBackendPtr> Backend(World& world, const std::string& name) {
  if (name != "gloo") {
    AIT_ASSIGN_OR_RETURN(auto second, world.communicator()->Split(0, 0));
    return ToBackend(std::move(second));
  }
  const std::shared_ptr<TcpStore> store(std::shared_ptr<void>(), world.store());  // of the world
  return testing::RealGloo(internal::MakeC10dStore(store, "real/", {Rank(0), Rank(1)},
                                                   Deadline::After(std::chrono::minutes(1))),
                           world.rank().value(), world.size().value());
}

StatusOr<std::string> Compare(const std::string& name) {
  AIT_ASSIGN_OR_RETURN(
      auto world,
      World::FromEnvironment({.transport = name == "shared_memory" ? SharedMemory() : Gloo()}));
  AIT_ASSIGN_OR_RETURN(C10dBackendPtr backend, Backend(*world, name));
  AIT_ASSIGN_OR_RETURN(std::string bits, testing::CompareGradients(world->communicator(), backend));
  AIT_RETURN_IF_ERROR(world->communicator()->Barrier().Wait());
  return bits;
}

}  // namespace
}  // namespace ait

int main(int argc, char** argv) {
  const auto bits = ait::Compare(argc > 1 ? argv[1] : "ait");
  if (!bits.ok()) {
    std::fprintf(stderr, "%s\n", bits.status().ToString().c_str());
    return 1;
  }
  std::printf("bits %s\n", bits->c_str());
  return 0;
}

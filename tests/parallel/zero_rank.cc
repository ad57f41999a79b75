// SPDX-License-Identifier: Apache-2.0
// A rank of zero_process_test: `zero_rank TRANSPORT`, shm or gloo. Trains with every stage and prints
// a line of bits for each.
#include <cstdio>
#include <string>

#include "ait/comm/shared_memory.h"
#include "ait/comm/world.h"
#include "ait/tensor/gloo.h"
#include "parallel/zero_lines.h"

int main(int argc, char** argv) {
  const bool is_shm = argc > 1 && std::string(argv[1]) == "shm";
  auto world = ait::World::FromEnvironment({.transport = is_shm ? ait::SharedMemory() : ait::Gloo(),
                                            .communicator = {.timeout = std::chrono::minutes(3)}});
  if (!world.ok()) {
    std::fprintf(stderr, "%s\n", world.status().ToString().c_str());
    return 4;
  }
  std::printf("%s", ait::testing::ZeroLines((*world)->communicator()).c_str());
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// A rank of compression_process_test: `compression_rank METHOD…` trains over Gloo by each method in
// turn.
#include <cstdio>

#include "ait/comm/world.h"
#include "ait/tensor/gloo.h"
#include "parallel/compressed_training.h"

int main(int argc, char** argv) {
  auto world = ait::World::FromEnvironment({.transport = ait::Gloo()});
  if (!world.ok()) {
    std::fprintf(stderr, "%s\n", world.status().ToString().c_str());
    return 4;
  }
  for (int i = 1; i < argc; ++i) {
    const auto bits = ait::testing::TrainCompressed((*world)->communicator(), argv[i], 3);
    if (!bits.ok()) {
      std::fprintf(stderr, "%s: %s\n", argv[i], bits.status().ToString().c_str());
      return 3;
    }
    std::printf("%s %s\n", argv[i], bits->c_str());
  }
  return 0;
}

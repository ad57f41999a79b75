// SPDX-License-Identifier: Apache-2.0
// A rank of data_parallel_process_test: `data_parallel_rank [PHASE]`. Trains over Gloo; rank 1
// kills itself in the third step at PHASE: forward, backward, collective or step. Exit code 3 if
// training failed.
#include <csignal>
#include <cstdio>
#include <map>
#include <string>

#include "ait/comm/world.h"
#include "ait/tensor/gloo.h"
#include "parallel/training.h"

int main(int argc, char** argv) {
  using ait::testing::Phase;
  const std::map<std::string, Phase> phases = {{"forward", Phase::kForward},
                                               {"backward", Phase::kBackward},
                                               {"collective", Phase::kCollective},
                                               {"step", Phase::kStep}};
  const auto chosen = phases.find(argc > 1 ? argv[1] : "");
  // Longer than the test waits: what ends the survivors is the news of the death, not the deadline.
  auto world = ait::World::FromEnvironment(
      {.transport = ait::Gloo(), .communicator = {.timeout = std::chrono::minutes(3)}});
  if (!world.ok()) {
    std::fprintf(stderr, "%s\n", world.status().ToString().c_str());
    return 4;
  }
  const int rank = (*world)->rank().value();
  const auto result =
      ait::testing::TrainTiny((*world)->communicator(), 6, [&](int step, Phase phase) {
        if (step != 3 || rank != 1 || chosen == phases.end() || phase != chosen->second) return;
        std::raise(SIGKILL);
      });
  if (!result.ok()) {
    std::printf("rank %d ends: %s\n", rank, result.status().ToString().c_str());
    return 3;
  }
  std::printf("bits %s\n", result->c_str());
  return 0;
}

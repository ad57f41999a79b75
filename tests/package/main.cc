// SPDX-License-Identifier: Apache-2.0
// A program of somebody else: four threads sum their ranks through the collectives of ait.
#include <cstdio>
#include <thread>
#include <vector>

#include "ait/base/version.h"
#include "ait/comm/thread_group.h"

int main() {
  auto ranks = ait::MakeThreadGroup(ait::WorldSize(4));
  std::vector<float> sums(4);
  std::vector<std::thread> threads;
  for (int r = 0; r < 4; ++r) {
    threads.emplace_back([&, r] {
      std::vector<float> x(100, static_cast<float>(r));
      if (ranks[r]->AllReduce(ait::View(x), ait::ReduceOp::kSum).Wait().ok()) sums[r] = x[99];
    });
  }
  for (std::thread& thread : threads) thread.join();
  std::printf("ait %d.%d: sum over ranks %g\n", AIT_VERSION_MAJOR, AIT_VERSION_MINOR, sums[0]);
  return sums == std::vector<float>(4, 6.f) ? 0 : 1;
}

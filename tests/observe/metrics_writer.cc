// SPDX-License-Identifier: Apache-2.0
// Appends steps 1, 2, 3 … to the log named by the first argument, until it is killed.
#include <cstdio>

#include "ait/observe/metrics_log.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  auto log = ait::MetricsLog::Open(argv[1]);
  if (!log.ok()) {
    std::fprintf(stderr, "%s\n", log.status().ToString().c_str());
    return 1;
  }
  for (std::int64_t step = 1;; ++step) {
    if (!log->Append({.step = step, .loss = 1.0 / static_cast<double>(step)}).ok()) return 3;
    if (step == 100) std::puts("hundred"), std::fflush(stdout);
  }
}

// SPDX-License-Identifier: Apache-2.0
// Joins a cgroup, says how its memory is, fills it up to so many MiB, and says so again:
//   memory_filler CGROUP MIB
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "ait/observe/memory_pressure.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  std::ofstream procs(std::string(argv[1]) + "/cgroup.procs");
  procs << ::getpid() << std::flush;
  if (!procs) return 3;
  ait::MemoryPressureWatch watch;
  std::puts(watch.Read().Describe().c_str());
  const std::int64_t mib = std::atoll(argv[2]);
  while (true) {
    // Few at a time: what is in use at the start counts, too.
    const ait::MemoryPressure pressure = watch.Read();
    const ait::MemoryRoom* room = pressure.tightest();
    if (room == nullptr) return 4;
    if (room->used >= ait::MiB(mib) || pressure.verdict == ait::MemoryVerdict::kAtRisk) break;
    void* const block =
        ::mmap(nullptr, 1 << 18, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (block == MAP_FAILED) return 5;
    std::memset(block, 1, 1 << 18);
  }
  std::puts(watch.Read().Describe().c_str());
  return 0;
}

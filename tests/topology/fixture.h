// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_TOPOLOGY_FIXTURE_H_
#define AIT_TESTS_TOPOLOGY_FIXTURE_H_

// A /proc and a /sys made of files, in a folder that is removed at the end.
//
//   Fixture fixture;
//   fixture.AddNode(0, "0-3", GiB(8));
//   fixture.Write("sys/devices/system/cpu/online", "0-3");
//   ReadMachine(fixture.roots());

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "ait/base/types.h"
#include "ait/topology/id_set.h"
#include "ait/topology/system_roots.h"
#include "support/process.h"

namespace ait::testing {

class Fixture {
 public:
  SystemRoots roots() const { return {.proc = folder_ / "proc", .sys = folder_ / "sys"}; }

  /// Writes a file, and the folders to it; `path` starts with "proc/" or "sys/".
  void Write(std::string_view path, std::string_view text) {
    const std::filesystem::path file(folder_ / path);
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
    ASSERT_TRUE(std::filesystem::exists(file)) << file;
  }

  /// A symbolic link at `path` to `target`, both as of `Write`.
  void Link(std::string_view path, std::string_view target) {
    const std::filesystem::path link(folder_ / path);
    std::filesystem::create_directories(link.parent_path());
    std::filesystem::create_symlink(folder_ / target, link);
  }

  void Remove(std::string_view path) { std::filesystem::remove_all(folder_ / path); }

  /// /proc as every machine has it.
  void AddProc(Bytes memory, std::string_view allowed_cpus, std::string_view allowed_nodes = "0") {
    Write("proc/meminfo",
          StrCat("MemTotal:       ", memory.value() / 1024,
                 " kB\nMemFree:  1 kB\nMemAvailable:   ", memory.value() / 2048, " kB\n"));
    Write("proc/self/status", StrCat("Name:\ttest\nCpus_allowed:\tf\nCpus_allowed_list:\t",
                                     allowed_cpus, "\nMems_allowed_list:\t", allowed_nodes, "\n"));
  }

  /// CPUs that are online, each with its core and last-level cache as lists; the L1 caches are
  /// those of the core.
  void AddCpus(std::string_view cpus, std::string_view core, std::string_view cache, int package) {
    const CpuSet ids = CpuSet::Parse(cpus).value();
    for (int cpu : ids) {
      const std::string folder = StrCat("sys/devices/system/cpu/cpu", cpu);
      Write(folder + "/topology/physical_package_id", StrCat(package, "\n"));
      Write(folder + "/topology/thread_siblings_list", StrCat(core, "\n"));
      AddCache(folder + "/cache/index0", 1, "Data", "32K", core);
      AddCache(folder + "/cache/index1", 1, "Instruction", "32K", core);
      AddCache(folder + "/cache/index2", 3, "Unified", "16M", cache);
    }
  }

  /// A NUMA node; an empty list and zero bytes are left out as the kernel does.
  void AddNode(int id, std::string_view cpus, Bytes memory, std::string_view distances = "10") {
    const std::string folder = StrCat("sys/devices/system/node/node", id);
    Write(folder + "/cpulist", StrCat(cpus, "\n"));
    Write(folder + "/meminfo", StrCat("Node ", id, " MemTotal:        ", memory.value() / 1024,
                                      " kB\nNode ", id, " MemFree:  12 kB\n"));
    Write(folder + "/distance", StrCat(distances, "\n"));
  }

  /// Two sockets, each one node of 16 GiB with two caches of two cores of two threads: the threads
  /// of core i are CPUs i and i + 8, as Linux counts on most servers.
  void MakeTwoSockets() {
    AddProc(GiB(32), "0-15", "0-1");
    Write("sys/devices/system/cpu/online", "0-15\n");
    Write("sys/devices/system/node/online", "0-1\n");
    for (int core = 0; core < 8; ++core) {
      const int pair = core / 2 * 2;
      AddCpus(StrCat(core, ",", core + 8), StrCat(core, ",", core + 8),
              StrCat(pair, "-", pair + 1, ",", pair + 8, "-", pair + 9), core / 4);
    }
    AddNode(0, "0-3,8-11", GiB(16), "10 21");
    AddNode(1, "4-7,12-15", GiB(16), "21 10");
  }

 private:
  void AddCache(const std::string& folder, int level, std::string_view type, std::string_view size,
                std::string_view cpus) {
    Write(folder + "/level", StrCat(level, "\n"));
    Write(folder + "/type", StrCat(type, "\n"));
    Write(folder + "/size", StrCat(size, "\n"));
    Write(folder + "/shared_cpu_list", StrCat(cpus, "\n"));
  }

  TempDir folder_;
};

}  // namespace ait::testing

#endif  // AIT_TESTS_TOPOLOGY_FIXTURE_H_

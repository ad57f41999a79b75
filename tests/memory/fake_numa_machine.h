// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_MEMORY_FAKE_NUMA_MACHINE_H_
#define AIT_TESTS_MEMORY_FAKE_NUMA_MACHINE_H_

// A machine with any NUMA nodes: its /sys and its system calls. Memory is real, and where its pages
// lie is kept in a table by the kernel's rules.
//
//   FakeNumaMachine machine({{.id = 0, .cpus = "0-1", .memory = GiB(1)}, {.id = 2, …}});
//   machine.forbidden_bind = EPERM;
//   auto memory = NumaResourceMaker::Make({.nodes = {2}, .roots = machine.roots()}, machine);

#include <linux/mempolicy.h>

#include <cerrno>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "memory/mapping_internal.h"
#include "memory/numa_maker_internal.h"
#include "memory/numa_ops_internal.h"
#include "topology/fixture.h"

namespace ait::testing {

struct FakeNode {
  int id = 0;
  std::string cpus;      // empty: memory alone
  Bytes memory{0};       // 0: CPUs alone
  std::string distance;  // to all, ascending by id
};

class FakeNumaMachine final : public internal::NumaOps {
 public:
  explicit FakeNumaMachine(const std::vector<FakeNode>& nodes) : nodes_(nodes) {
    NodeSet online, with_memory;
    CpuSet cpus;
    for (const FakeNode& node : nodes) {
      online.Add(node.id);
      if (node.memory > Bytes(0)) with_memory.Add(node.id);
      cpus = cpus | CpuSet::Parse(node.cpus).value();
      fixture_.AddNode(node.id, node.cpus, node.memory, node.distance);
      SetFree(node.id, node.memory);
    }
    fixture_.AddProc(GiB(64), cpus.ToString(), with_memory.ToString());
    fixture_.Write("proc/meminfo", "MemTotal: 67108864 kB\nMemAvailable: 67108864 kB\n");
    fixture_.Write("sys/devices/system/cpu/online", cpus.ToString());
    fixture_.Write("sys/devices/system/node/online", online.ToString());
    fixture_.Write("sys/devices/system/node/has_memory", with_memory.ToString());
  }

  SystemRoots roots() const { return fixture_.roots(); }
  Fixture& fixture() { return fixture_; }

  /// What a node can still hand out, as its meminfo tells and as its pages are counted.
  void SetFree(int node, Bytes bytes) {
    const std::lock_guard lock(mutex_);
    free_[node] = bytes.value() / kPageBytes;
    fixture_.Write(StrCat("sys/devices/system/node/node", node, "/meminfo"),
                   StrCat("Node ", node, " MemTotal:  ", GiB(1).value() / 1024, " kB\nNode ", node,
                          " MemFree:  ", bytes.value() / 1024, " kB\n"));
  }
  void SetHugePages(int node, int total, int free) {
    const std::string folder =
        StrCat("sys/devices/system/node/node", node, "/hugepages/hugepages-2048kB");
    fixture_.Write(folder + "/nr_hugepages", StrCat(total, "\n"));
    fixture_.Write(folder + "/free_hugepages", StrCat(free, "\n"));
  }

  int forbidden_bind = 0;  // errno of the calls; 0: they work
  int forbidden_query = 0;
  int forbidden_move = 0;
  int forbidden_policy = 0;
  int forbidden_populate = 0;
  bool has_preferred_many = true;
  bool can_run_on = true;
  int current_node = 0;  // of every thread
  int binds = 0;         // calls so far
  int calls = 0;         // all of them

  int Bind(void* address, std::size_t bytes, int mode, const NodeSet& nodes) override {
    const std::lock_guard lock(mutex_);
    ++binds, ++calls;
    if (forbidden_bind != 0) return forbidden_bind;
    if (mode == MPOL_PREFERRED_MANY && !has_preferred_many) return EINVAL;
    for (int node : nodes) {
      if (!free_.contains(node)) return EINVAL;
    }
    policies_[Key(address)] = {bytes, mode, nodes};
    return 0;
  }

  int Query(std::span<void* const> pages, std::span<int> status) override {
    const std::lock_guard lock(mutex_);
    ++calls;
    if (forbidden_query != 0) return forbidden_query;
    for (std::size_t i = 0; i < pages.size(); ++i) {
      const auto found = node_of_.find(Key(pages[i]));
      status[i] = found == node_of_.end() ? -ENOENT : found->second;
    }
    return 0;
  }

  int Move(std::span<void* const> pages, int node, std::span<int> status) override {
    const std::lock_guard lock(mutex_);
    ++calls;
    if (forbidden_move != 0) return forbidden_move;
    for (std::size_t i = 0; i < pages.size(); ++i) status[i] = node_of_[Key(pages[i])] = node;
    return 0;
  }

  int ProbeThreadPolicy() override { return forbidden_policy; }

  void* Map(std::size_t bytes, std::size_t alignment, bool reserved_huge_pages) override {
    ++calls;
    (void)reserved_huge_pages;
    return internal::MapAligned(bytes, alignment, -1);
  }

  void Unmap(void* address, std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    ++calls;
    for (std::size_t at = 0; at < bytes; at += kPageBytes) {
      const auto found = node_of_.find(Key(address) + at);
      if (found == node_of_.end()) continue;
      ++free_[found->second];
      node_of_.erase(found);
    }
    policies_.erase(policies_.lower_bound(Key(address)),
                    policies_.lower_bound(Key(address) + bytes));
    internal::Unmap(address, bytes);
  }

  int Populate(void* address, std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    ++calls;
    if (forbidden_populate != 0) return forbidden_populate;
    return Place(address, bytes);
  }

  void Touch(void* address, std::size_t bytes) override {
    const std::lock_guard lock(mutex_);
    EXPECT_EQ(Place(address, bytes), 0) << "the process would be killed here";
  }

  Status RunOn(const CpuSet& cpus, const std::function<void()>& function) override {
    ++calls;
    if (!can_run_on) return PermissionDeniedError("no");
    const int before = current_node;
    for (const FakeNode& node : nodes_) {
      if (CpuSet::Parse(node.cpus).value().contains(cpus.front())) current_node = node.id;
    }
    function();
    current_node = before;
    return OkStatus();
  }

  int CurrentNode() override { return current_node; }

 private:
  static constexpr std::size_t kPageBytes = internal::kPage;
  struct Policy {
    std::size_t bytes;
    int mode;
    NodeSet nodes;
  };

  static std::uintptr_t Key(const void* address) {
    return reinterpret_cast<std::uintptr_t>(address);
  }

  bool Take(int node) { return free_[node] > 0 && free_[node]-- > 0; }

  bool TakeAny(int& node) {
    for (const FakeNode& other : nodes_) {
      if (Take(other.id)) return node = other.id, true;
    }
    return false;
  }

  /// The node of a new page by the kernel's rules; -1: out of memory.
  int NodeFor(std::uintptr_t page) {
    int node = current_node;
    auto policy = policies_.upper_bound(page);
    if (policy != policies_.begin() && (--policy)->first + policy->second.bytes > page) {
      const auto& [bytes, mode, nodes] = policy->second;
      if (mode == MPOL_BIND || mode == MPOL_PREFERRED_MANY) {
        for (int allowed : nodes) {
          if (Take(allowed)) return allowed;
        }
        if (mode == MPOL_BIND) return -1;
      } else if (mode == MPOL_INTERLEAVE) {
        node = nodes[static_cast<int>((page - policy->first) / kPageBytes) % nodes.size()];
      } else if (!nodes.empty()) {
        node = nodes.front();
      }
    }
    if (Take(node)) return node;
    return TakeAny(node) ? node : -1;
  }

  int Place(void* address, std::size_t bytes) {
    for (std::size_t at = 0; at < bytes; at += kPageBytes) {
      if (node_of_.contains(Key(address) + at)) continue;
      const int node = NodeFor(Key(address) + at);
      if (node < 0) return ENOMEM;
      node_of_[Key(address) + at] = node;
    }
    return 0;
  }

  const std::vector<FakeNode> nodes_;
  Fixture fixture_;
  std::mutex mutex_;
  std::map<int, std::int64_t> free_;  // pages
  std::map<std::uintptr_t, Policy> policies_;
  std::map<std::uintptr_t, int> node_of_;
};

}  // namespace ait::testing

#endif  // AIT_TESTS_MEMORY_FAKE_NUMA_MACHINE_H_

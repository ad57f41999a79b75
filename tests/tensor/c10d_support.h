// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_TENSOR_C10D_SUPPORT_H_
#define AIT_TESTS_TENSOR_C10D_SUPPORT_H_

// Backends of c10d for tests: ait's over threads, and libtorch's own Gloo.

#include "tensor/torch_internal.h"
// Keep the order.
#include <cstdlib>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <vector>

#include "ait/comm/thread_group.h"
#include "ait/tensor/c10d.h"

namespace ait::testing {

/// Runs `body` for every rank in a thread of its own; the text of the first exception, or "".
inline std::string OnThreads(int ranks, const std::function<void(int rank)>& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        body(rank);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& error : errors) {
    if (!error.empty()) return error;
  }
  return "";
}

// libtorch 2.11 has one flight recorder a process, into whose map of groups the first collectives of
// two groups write without a lock: ranks that are threads crash there, once in some hundred runs.
// Read when it is first used, which is after this.
inline const int no_flight_recorder = setenv("TORCH_FR_BUFFER_SIZE", "0", 1);

/// libtorch's Gloo over the loopback interface.
inline C10dBackendPtr RealGloo(const c10::intrusive_ptr<c10d::Store>& store, int rank, int size,
                               std::chrono::milliseconds timeout = std::chrono::seconds(60)) {
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1"));
  return c10::make_intrusive<c10d::ProcessGroupGloo>(store, rank, size, options);
}

/// A process group of c10d with this backend for the CPU.
inline c10::intrusive_ptr<c10d::ProcessGroup> GroupWith(C10dBackendPtr backend,
                                                        const std::string& name) {
  const int rank = backend->getRank(), size = backend->getSize();
  auto group =
      c10::make_intrusive<c10d::ProcessGroup>(c10::make_intrusive<c10d::HashStore>(), rank, size);
  group->setBackend(at::kCPU, c10d::ProcessGroup::BackendType::CUSTOM, std::move(backend));
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  group->setGroupName(name);
  return group;
}

}  // namespace ait::testing

#endif  // AIT_TESTS_TENSOR_C10D_SUPPORT_H_

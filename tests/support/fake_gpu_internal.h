// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_SUPPORT_FAKE_GPU_INTERNAL_H_
#define AIT_TESTS_SUPPORT_FAKE_GPU_INTERNAL_H_

// What the fake CUDA run time and the fake NCCL share.

#include <cstddef>
#include <functional>
#include <mutex>

#include "support/fake_gpu.h"

namespace ait::testing {

struct FakeGpu {
  std::mutex mutex;
  FakeGpuFaults faults;
  FakeGpuCounts counts;
};
FakeGpu& Fake();

/// Gives `work` to a stream (null: the default stream). It may block; it runs on the thread of the
/// stream.
void FakeEnqueue(void* stream, std::function<void()> work);

/// The address at which the fake itself reaches what the "device" sees at `address`.
void* FakeReach(const void* address);

/// A block of device memory of which the host can reach nothing; null if memory is exhausted.
void* FakeAllocate(std::size_t bytes, int device);
bool FakeFree(void* address);

/// The current device of this thread.
int FakeCurrentDevice();

}  // namespace ait::testing

#endif  // AIT_TESTS_SUPPORT_FAKE_GPU_INTERNAL_H_

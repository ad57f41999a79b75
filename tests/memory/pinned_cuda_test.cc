// SPDX-License-Identifier: Apache-2.0
// Memory that is pinned by CUDA, which is a fake of it; and by the real one where there is a GPU.
#include <gtest/gtest.h>

#include "ait/memory/buffer.h"
#include "ait/memory/heap.h"
#include "ait/memory/pinned.h"
#include "ait/memory/statistics.h"
#include "support/fake_gpu.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::FakeGpuCounted;
using ::ait::testing::StatusIs;
using ::testing::HasSubstr;

constexpr std::size_t kMiB = std::size_t{1} << 20;

std::shared_ptr<DeviceRuntime> FakeGpus(const testing::FakeGpuFaults& faults = {}) {
  testing::ResetFakeGpu();
  testing::SetFakeGpuState(faults);
  return DeviceRuntime::Open({.library = testing::FakeGpuLibrary()});
}

TEST(PinnedByCuda, TheDeviceSeesItUntilItGoesBack) {
  const auto gpus = FakeGpus();
  const auto counted = StatisticsResource::Create(HeapResource::Create());
  {
    const auto memory = PinnedResource::Create({.upstream = counted, .gpus = gpus}).value();
    EXPECT_EQ(memory->method(), PinMethod::kCuda);
    ASSERT_OK_AND_ASSIGN(HostBuffer large, HostBuffer::Create(memory, 3 * kMiB));
    ASSERT_OK_AND_ASSIGN(HostBuffer small, HostBuffer::Create(memory, 100));
    EXPECT_EQ(gpus->Locate(large.data() + 3 * kMiB - 1)->place, MemoryPlace::kPinned);
    EXPECT_EQ(gpus->Locate(small.data())->place, MemoryPlace::kPinned);
    EXPECT_EQ(memory->counters().locked, MiB(4));
    EXPECT_EQ(FakeGpuCounted().registered, MiB(4).value());
    EXPECT_EQ(FakeGpuCounted().registers, 2);
    large = HostBuffer();
    ASSERT_OK_AND_ASSIGN(large, HostBuffer::Create(memory, 3 * kMiB));
    EXPECT_EQ(FakeGpuCounted().registers, 2) << "it was kept";
    large = HostBuffer();
    EXPECT_EQ(memory->Trim(), MiB(3));
    EXPECT_EQ(FakeGpuCounted().registered, MiB(1).value());
  }
  EXPECT_EQ(FakeGpuCounted().registered, 0);
  EXPECT_EQ(counted->statistics().current_bytes, 0);
}

TEST(PinnedByCuda, WhatCudaCannotPinIsAnErrorOrPageable) {
  const auto gpus = FakeGpus({.pinnable = MiB(2).value()});
  EXPECT_THAT(PinnedResource::Create({.gpus = gpus}).value()->Allocate(3 * kMiB),
              StatusIs(StatusCode::kResourceExhausted,
                       HasSubstr("cudaHostRegister of 3145728 bytes: cudaErrorMemoryAllocation")));
  const auto memory =
      PinnedResource::Create({.gpus = gpus, .on_failure = PinFailure::kUsePageable}).value();
  ASSERT_OK_AND_ASSIGN(const HostBuffer buffer, HostBuffer::Create(memory, 3 * kMiB));
  EXPECT_EQ(gpus->Locate(buffer.data())->place, MemoryPlace::kHost);
  EXPECT_EQ(memory->counters().pageable, MiB(3));
  EXPECT_THAT(memory->counters().pageable_reason, HasSubstr("cudaHostRegister"));
}

TEST(PinnedByCuda, GivesUpWhatItKeepsBeforeItFails) {
  const auto gpus = FakeGpus({.pinnable = MiB(4).value()});
  const auto memory = PinnedResource::Create({.gpus = gpus}).value();
  {
    ASSERT_OK_AND_ASSIGN(const HostBuffer kept, HostBuffer::Create(memory, 3 * kMiB));
  }
  EXPECT_OK(HostBuffer::Create(memory, 4 * kMiB));
}

TEST(PinnedByCuda, ARealGpuSeesIt) {
  const auto gpus = DeviceRuntime::Open();
  if (gpus->count() == 0) GTEST_SKIP() << gpus->status();
  const auto memory = PinnedResource::Create({.gpus = gpus}).value();
  ASSERT_OK_AND_ASSIGN(const HostBuffer buffer, HostBuffer::Create(memory, 3 * kMiB));
  EXPECT_EQ(gpus->Locate(buffer.data())->place, MemoryPlace::kPinned);
}

}  // namespace
}  // namespace ait

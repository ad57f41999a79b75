// SPDX-License-Identifier: Apache-2.0
#include "ait/device/buffer.h"

#include <utility>

#include "support/fake_gpu.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

std::shared_ptr<DeviceRuntime> OpenFake() {
  testing::ResetFakeGpu();
  return DeviceRuntime::Open({.library = testing::FakeGpuLibrary()});
}

TEST(DeviceBuffer, GivesItselfBack) {
  const auto gpus = OpenFake();
  const int before = testing::FakeGpuCounted().blocks;
  {
    ASSERT_OK_AND_ASSIGN(DeviceBuffer a, DeviceBuffer::Create(gpus, Device(0), Bytes(100)));
    ASSERT_OK_AND_ASSIGN(DeviceBuffer b,
                         DeviceBuffer::Create(gpus, Device(0), Bytes(50), MemoryPlace::kPinned));
    EXPECT_EQ(testing::FakeGpuCounted().blocks, before + 2);
    static_cast<char*>(b.data())[49] = 1;
    EXPECT_EQ(b.place(), MemoryPlace::kPinned);
    EXPECT_EQ(b.size(), Bytes(50));
    void* const block = a.data();
    DeviceBuffer moved = std::move(a);
    EXPECT_EQ(moved.data(), block);
    moved = DeviceBuffer();
  }
  EXPECT_EQ(testing::FakeGpuCounted().blocks, before);
}

TEST(DeviceBuffer, ZeroBytesAreAllowed) {
  ASSERT_OK_AND_ASSIGN(const DeviceBuffer none,
                       DeviceBuffer::Create(OpenFake(), Device(0), Bytes(0)));
  EXPECT_EQ(none.data(), nullptr);
}

TEST(DeviceBuffer, RefusesWhatItCannotHold) {
  const auto gpus = OpenFake();
  EXPECT_THAT(DeviceBuffer::Create(gpus, Device(0), Bytes(-1)),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("-1 bytes")));
  EXPECT_THAT(DeviceBuffer::Create(gpus, Device(0), Bytes(1), MemoryPlace::kHost),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(DeviceBuffer::Create(gpus, Device(9), Bytes(1)),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("InvalidDevice")));
  testing::SetFakeGpuState({.free_memory = 1000});
  EXPECT_THAT(DeviceBuffer::Create(gpus, Device(0), Bytes(1001)),
              StatusIs(StatusCode::kResourceExhausted,
                       HasSubstr("cudaMalloc of 1001 bytes on device 0: "
                                 "cudaErrorMemoryAllocation (out of memory)")));
}

}  // namespace
}  // namespace ait

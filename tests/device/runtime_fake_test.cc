// SPDX-License-Identifier: Apache-2.0
// The run time against a fake of it: what it makes of what CUDA says.
#include <vector>

#include "ait/device/buffer.h"
#include "ait/device/runtime.h"
#include "ait/device/stream.h"
#include "support/fake_gpu.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using testing::FakeGpuFaults;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

std::shared_ptr<DeviceRuntime> OpenWith(const FakeGpuFaults& faults) {
  testing::ResetFakeGpu();
  testing::SetFakeGpuState(faults);
  return DeviceRuntime::Open({.library = testing::FakeGpuLibrary()});
}

TEST(DeviceRuntime, DescribesDevices) {
  const auto gpus = OpenWith({.devices = 2});
  ASSERT_OK(gpus->status());
  EXPECT_EQ(gpus->count(), 2);
  EXPECT_THAT(gpus->description(), HasSubstr("libait_fake_gpu"));
  ASSERT_OK_AND_ASSIGN(const DeviceInfo info, gpus->Describe(Device(1)));
  EXPECT_EQ(info.name, "Fake GPU 1");
  EXPECT_EQ(info.pci_id, "0000:02:00.0");
  EXPECT_EQ(info.compute_major, 9);
  EXPECT_EQ(info.memory, GiB(1));
  for (const int wrong : {-1, 2}) {
    EXPECT_THAT(gpus->Describe(Device(wrong)),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("allowed are 0 to 1")));
  }
  ASSERT_OK_AND_ASSIGN(const bool peer, gpus->CanAccessPeer(Device(0), Device(1)));
  EXPECT_TRUE(peer);
  ASSERT_OK_AND_ASSIGN(const bool self, gpus->CanAccessPeer(Device(0), Device(0)));
  EXPECT_FALSE(self);
}

TEST(DeviceRuntime, OnlySetCurrentChangesTheCurrentDevice) {
  const auto gpus = OpenWith({});
  const auto current = [&] { return gpus->current()->value(); };
  EXPECT_EQ(current(), 0);
  ASSERT_OK_AND_ASSIGN(Stream stream, Stream::Create(gpus, Device(1)));
  ASSERT_OK_AND_ASSIGN(Event event, Event::Create(gpus, Device(1)));
  ASSERT_OK_AND_ASSIGN(DeviceBuffer buffer, DeviceBuffer::Create(gpus, Device(1), Bytes(8)));
  EXPECT_OK(event.Record(Stream::Borrow(gpus, Device(1), nullptr)));
  EXPECT_EQ(current(), 0);
  EXPECT_OK(gpus->SetCurrent(Device(1)));
  EXPECT_EQ(current(), 1);
  EXPECT_THAT(gpus->SetCurrent(Device(7)), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_EQ(current(), 1);
  EXPECT_OK(gpus->SetCurrent(Device(0)));
}

TEST(DeviceRuntime, NoDriverAndNoDeviceAreNoGpu) {
  EXPECT_THAT(OpenWith({.driver = false})->status(),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("InsufficientDriver")));
  const auto none = OpenWith({.devices = 0});
  EXPECT_THAT(none->status(), StatusIs(StatusCode::kFailedPrecondition, HasSubstr("nvidia-smi")));
  EXPECT_THAT(DeviceBuffer::Create(none, Device(0), Bytes(1)),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("no GPU")));
}

TEST(DeviceRuntime, AnotherMajorVersionIsRefused) {
  EXPECT_THAT(OpenWith({.cudart_version = 9020})->status(),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("is CUDA 9.2, and ait was")));
}

TEST(DeviceRuntime, ALibraryThatIsNoRunTimeIsRefused) {
  EXPECT_THAT(DeviceRuntime::Open({.library = "libc.so.6"})->status(),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("has no function cuda")));
}

TEST(DeviceRuntime, LocatesMemory) {
  const auto gpus = OpenWith({});
  ASSERT_OK_AND_ASSIGN(const DeviceBuffer on_device,
                       DeviceBuffer::Create(gpus, Device(1), Bytes(100)));
  ASSERT_OK_AND_ASSIGN(const DeviceBuffer pinned,
                       DeviceBuffer::Create(gpus, Device(0), Bytes(100), MemoryPlace::kPinned));
  const int on_stack = 0;
  ASSERT_OK_AND_ASSIGN(const MemoryLocation a,
                       gpus->Locate(static_cast<std::byte*>(on_device.data()) + 99));
  EXPECT_EQ(a.place, MemoryPlace::kDevice);
  EXPECT_EQ(a.device, Device(1));
  ASSERT_OK_AND_ASSIGN(const MemoryLocation b, gpus->Locate(pinned.data()));
  EXPECT_EQ(b.place, MemoryPlace::kPinned);
  ASSERT_OK_AND_ASSIGN(const MemoryLocation c, gpus->Locate(&on_stack));
  EXPECT_EQ(c.place, MemoryPlace::kHost);
}

TEST(DeviceRuntime, PinsMemoryThatIsThere) {
  const auto gpus = OpenWith({.pinnable = 8192});
  std::vector<std::byte> bytes(8192);
  const auto place = [&](std::size_t at) { return gpus->Locate(bytes.data() + at)->place; };
  EXPECT_EQ(place(0), MemoryPlace::kHost);
  ASSERT_OK(gpus->Pin(bytes.data(), Bytes(5000)));
  EXPECT_EQ(place(4999), MemoryPlace::kPinned);
  EXPECT_EQ(place(5000), MemoryPlace::kHost);
  EXPECT_EQ(testing::FakeGpuCounted().registered, 5000);
  EXPECT_THAT(gpus->Pin(bytes.data() + 100, Bytes(1)), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(gpus->Pin(bytes.data() + 5000, Bytes(3193)),
              StatusIs(StatusCode::kResourceExhausted,
                       HasSubstr("cudaHostRegister of 3193 bytes: cudaErrorMemoryAllocation")));
  EXPECT_THAT(gpus->Unpin(bytes.data() + 1), StatusIs(StatusCode::kInvalidArgument));
  ASSERT_OK(gpus->Unpin(bytes.data()));
  EXPECT_EQ(place(0), MemoryPlace::kHost);
  EXPECT_EQ(testing::FakeGpuCounted().registered, 0);
  EXPECT_THAT(gpus->Pin(nullptr, Bytes(1)), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(gpus->Pin(bytes.data(), Bytes(0)), StatusIs(StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace ait

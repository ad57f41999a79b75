// SPDX-License-Identifier: Apache-2.0
#include "activation/offload_device_internal.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <span>

#include "ait/device/buffer.h"
#include "support/fake_gpu.h"
#include "support/status_matchers.h"

namespace ait::internal {
namespace {

std::shared_ptr<DeviceRuntime> Gpus() {
  return DeviceRuntime::Open({.library = testing::FakeGpuLibrary()});
}

class DeviceCopierTest : public ::testing::Test {
 protected:
  DeviceCopierTest() { testing::ResetFakeGpu(); }
  ~DeviceCopierTest() override { testing::ResetFakeGpu(); }
};

TEST_F(DeviceCopierTest, BytesGoOutAndComeBackInTheOrderOfStreams) {
  const auto gpus = Gpus();
  constexpr Bytes kBytes = KiB(64);
  ASSERT_OK_AND_ASSIGN(const DeviceBuffer tensor, DeviceBuffer::Create(gpus, Device(0), kBytes));
  ASSERT_OK_AND_ASSIGN(const DeviceBuffer block,
                       DeviceBuffer::Create(gpus, Device(0), kBytes, MemoryPlace::kPinned));
  ASSERT_OK_AND_ASSIGN(Stream compute, Stream::Create(gpus, Device(0)));
  ASSERT_OK_AND_ASSIGN(const auto copier, DeviceCopier::Create(gpus, Device(0)));
  ASSERT_OK(compute.Fill(tensor.data(), 7, kBytes));
  ASSERT_OK_AND_ASSIGN(const Event out,
                       copier->Start(block.data(), tensor.data(), kBytes, compute.native()));
  ASSERT_OK(copier->Await(out, compute.native()));
  ASSERT_OK(compute.Fill(tensor.data(), 0, kBytes));  // the memory has another use meanwhile
  ASSERT_OK_AND_ASSIGN(const Event in,
                       copier->Start(tensor.data(), block.data(), kBytes, compute.native()));
  ASSERT_OK(copier->Await(in, compute.native()));
  ASSERT_OK_AND_ASSIGN(const DeviceBuffer seen,
                       DeviceBuffer::Create(gpus, Device(0), kBytes, MemoryPlace::kPinned));
  ASSERT_OK(compute.Copy(seen.data(), tensor.data(), kBytes));
  ASSERT_OK(compute.Wait());
  const std::span bytes(static_cast<const char*>(seen.data()),
                        static_cast<std::size_t>(kBytes.value()));
  EXPECT_TRUE(std::ranges::all_of(bytes, [](char byte) { return byte == 7; }));
}

TEST_F(DeviceCopierTest, WithoutADeviceItIsAnError) {
  EXPECT_FALSE(
      DeviceCopier::Create(DeviceRuntime::Open({.library = "/no/such/library"}), Device(0)).ok());
}

}  // namespace
}  // namespace ait::internal

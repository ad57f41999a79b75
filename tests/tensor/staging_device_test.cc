// SPDX-License-Identifier: Apache-2.0
// Staging to and from a GPU, with the fake one of tests/support/fake_gpu.h. Its tensors are made over
// its memory; libtorch computes nothing with them.
#include <ATen/core/ivalue.h>
// Keep the order.
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/ones.h>

#include <vector>

#include "ait/device/buffer.h"
#include "ait/memory/heap.h"
#include "ait/memory/statistics.h"
#include "ait/tensor/staging.h"
#include "support/fake_gpu.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::testing::HasSubstr;

class StagingToADevice : public ::testing::Test {
 protected:
  StagingToADevice() { testing::ResetFakeGpu(); }
  ~StagingToADevice() override { testing::ResetFakeGpu(); }

  void SetUp() override {
    gpus_ = DeviceRuntime::Open({.library = testing::FakeGpuLibrary()});
    ASSERT_EQ(gpus_->count(), 2) << gpus_->status();
    staging_ = Make({});
  }

  std::shared_ptr<Staging> Make(StagingOptions options) {
    options.memory = memory_;
    options.gpus = gpus_;
    return Staging::Create(options).value();
  }

  /// A tensor of `count` floats on a device.
  at::Tensor OnDevice(std::int64_t count, Device device = Device(0)) {
    blocks_.push_back(DeviceBuffer::Create(gpus_, device, Bytes(count * 4)).value());
    const at::Device place(at::kCUDA, static_cast<at::DeviceIndex>(device.value()));
    return at::for_blob(blocks_.back().data(), {count})
        .options(at::TensorOptions(at::kFloat).device(place))
        .target_device(place)
        .make_tensor();
  }

  std::shared_ptr<DeviceRuntime> gpus_;
  const std::shared_ptr<StatisticsResource> memory_ =
      StatisticsResource::Create(HeapResource::Create());
  std::shared_ptr<Staging> staging_;
  std::vector<DeviceBuffer> blocks_;
};

TEST_F(StagingToADevice, BytesGoThereAndBack) {
  const at::Tensor host = at::arange(1000, at::kFloat), device = OnDevice(1000);
  at::Tensor back = at::ones({1000});
  ASSERT_OK_AND_ASSIGN(StagedCopy there, staging_->Copy(device, host));
  ASSERT_OK(there.Wait());
  ASSERT_OK_AND_ASSIGN(StagedCopy here, staging_->Copy(back, device));
  ASSERT_OK(here.Wait());
  EXPECT_TRUE(back.equal(host));
  EXPECT_EQ(staging_->statistics().staged_count, 2);
  EXPECT_EQ(memory_->statistics().current_bytes, 0) << "both blocks were given back";
}

TEST_F(StagingToADevice, TheHostTensorIsFreeAtOnce) {
  testing::SetFakeGpuState({.copy_delay_us = 30'000});
  at::Tensor host = at::arange(100, at::kFloat), back = at::empty({100});
  const at::Tensor expected = host.clone(), device = OnDevice(100);
  ASSERT_OK_AND_ASSIGN(StagedCopy there, staging_->Copy(device, host));
  host.fill_(-1);  // while the copy is on its way
  ASSERT_OK_AND_ASSIGN(StagedCopy here, staging_->Copy(back, device));
  ASSERT_OK(here.Wait());
  EXPECT_TRUE(back.equal(expected));
  EXPECT_TRUE(*there.Done()) << "copies of an area are in order";
}

TEST_F(StagingToADevice, AStreamWaitsForTheCopyAndTheCopyForAStream) {
  testing::SetFakeGpuState({.copy_delay_us = 10'000});
  const at::Tensor host = at::arange(100, at::kFloat), first = OnDevice(100),
                   second = OnDevice(100);
  at::Tensor back = at::empty({100});
  ASSERT_OK_AND_ASSIGN(Stream compute, Stream::Create(gpus_, Device(0)));
  ASSERT_OK_AND_ASSIGN(StagedCopy there, staging_->Copy(first, host));
  ASSERT_OK(there.Before(compute));
  ASSERT_OK(compute.Copy(second.data_ptr(), first.data_ptr(), Bytes(400)));
  ASSERT_OK_AND_ASSIGN(StagedCopy here, staging_->Copy(back, second, &compute));
  ASSERT_OK(here.Wait());
  EXPECT_TRUE(back.equal(host));
}

TEST_F(StagingToADevice, BlocksComeBackWhenTheDeviceHasPassed) {
  const at::Tensor host = at::ones({1000}), device = OnDevice(1000);
  for (int i = 0; i < 50; ++i) {
    ASSERT_OK_AND_ASSIGN(StagedCopy copy, staging_->Copy(device, host));
    ASSERT_OK(copy.Wait());
  }
  EXPECT_EQ(memory_->statistics().peak_count, 1);
  for (int i = 0; i < 10; ++i) (void)*staging_->Copy(device, host);  // nobody waits
  staging_ = nullptr;                                                // but this
  EXPECT_EQ(memory_->statistics().current_bytes, 0);
}

TEST_F(StagingToADevice, WhatIsInFlightIsBounded) {
  testing::SetFakeGpuState({.copy_delay_us = 2'000});
  const auto bounded = Make({.max_in_flight = Bytes(8000)});
  const at::Tensor host = at::ones({1000}), device = OnDevice(1000);  // 4000 bytes
  std::vector<StagedCopy> copies;
  for (int i = 0; i < 10; ++i) copies.push_back(*bounded->Copy(device, host));
  EXPECT_LE(memory_->statistics().peak_bytes, 8000);
  EXPECT_GT(bounded->statistics().waited_count, 0);
  for (StagedCopy& copy : copies) EXPECT_OK(copy.Wait());
}

TEST_F(StagingToADevice, ABlockWaitedForByTheAreaStillArrives) {
  const auto bounded = Make({.max_in_flight = Bytes(4000)});
  const at::Tensor host = at::arange(1000, at::kFloat), device = OnDevice(1000);
  at::Tensor back = at::empty({1000});
  ASSERT_OK_AND_ASSIGN(StagedCopy there, bounded->Copy(device, host));
  ASSERT_OK_AND_ASSIGN(StagedCopy here, bounded->Copy(back, device));
  ASSERT_OK_AND_ASSIGN(StagedCopy again, bounded->Copy(device, host));  // makes room
  ASSERT_OK(here.Wait());
  EXPECT_TRUE(back.equal(host));
}

TEST_F(StagingToADevice, ACopyToTheHostThatWasGivenUpDoesNotArrive) {
  const auto bounded = Make({.max_in_flight = Bytes(4000)});
  const at::Tensor host = at::arange(1000, at::kFloat), device = OnDevice(1000);
  at::Tensor back = at::empty({1000});
  ASSERT_OK_AND_ASSIGN(StagedCopy there, bounded->Copy(device, host));
  {
    ASSERT_OK_AND_ASSIGN(const StagedCopy here, bounded->Copy(back, device));
  }
  back.fill_(7);
  ASSERT_OK_AND_ASSIGN(StagedCopy again, bounded->Copy(device, host));  // makes room
  ASSERT_OK(again.Wait());
  EXPECT_TRUE(back.eq(7).all().item<bool>());
}

TEST_F(StagingToADevice, BlocksOfCopiesToTheHostCountUntilTheyAreWaitedFor) {
  const auto bounded = Make({.max_in_flight = Bytes(12000)});
  const at::Tensor device = OnDevice(1000);
  std::vector<at::Tensor> back(6);
  std::vector<StagedCopy> copies;
  for (at::Tensor& tensor : back) {
    tensor = at::empty({1000});
    ASSERT_OK_AND_ASSIGN(StagedCopy copy, bounded->Copy(tensor, device));
    copies.push_back(std::move(copy));
    EXPECT_LE(bounded->statistics().in_flight_bytes, 12000);
  }
  for (StagedCopy& copy : copies) EXPECT_OK(copy.Wait());
  EXPECT_EQ(bounded->statistics().in_flight_bytes, 0);
}

TEST_F(StagingToADevice, PinnedTensorsAreNotStaged) {
  ASSERT_OK_AND_ASSIGN(DeviceBuffer pinned,
                       DeviceBuffer::Create(gpus_, Device(0), Bytes(400), MemoryPlace::kPinned));
  at::Tensor host = at::from_blob(pinned.data(), {100});
  host.fill_(5);
  const at::Tensor device = OnDevice(100);
  at::Tensor back = at::empty({100});
  ASSERT_OK_AND_ASSIGN(StagedCopy there, staging_->Copy(device, host));
  ASSERT_OK(there.Wait());
  EXPECT_EQ(staging_->statistics().staged_count, 0);
  ASSERT_OK_AND_ASSIGN(StagedCopy here, staging_->Copy(back, device));
  ASSERT_OK(here.Wait());
  EXPECT_TRUE(back.equal(host));
}

TEST_F(StagingToADevice, RefusesTensorsOfAnotherDevice) {
  EXPECT_THAT(staging_->Copy(OnDevice(10, Device(1)), at::ones({10})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("cuda:1")));
  EXPECT_THAT(Staging::Create({.gpus = gpus_, .device = Device(7)}),
              StatusIs(StatusCode::kInvalidArgument));
  const auto alone =
      *Staging::Create({.gpus = DeviceRuntime::Open({.library = "/nowhere/libcudart.so"})});
  EXPECT_THAT(alone->Copy(OnDevice(10), at::ones({10})),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("nowhere")));
}

TEST_F(StagingToADevice, AFailedCopyIsAnErrorAndKeepsNothing) {
  const at::Tensor host = at::ones({100}), device = OnDevice(100);
  testing::SetFakeGpuState({.copy_error = 700});
  EXPECT_FALSE(staging_->Copy(device, host).ok());
  EXPECT_EQ(memory_->statistics().current_bytes, 0);
  EXPECT_EQ(staging_->statistics().in_flight_bytes, 0);
}

}  // namespace
}  // namespace ait

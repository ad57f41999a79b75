// SPDX-License-Identifier: Apache-2.0
// What holds on every machine, with a GPU or without.
#include "ait/device/runtime.h"

#include "ait/device/buffer.h"
#include "ait/device/stream.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

TEST(DeviceRuntime, SaysWhatThereIs) {
  const auto gpus = DeviceRuntime::Open();
  ASSERT_NE(gpus, nullptr);
  EXPECT_FALSE(gpus->description().empty());
  EXPECT_EQ(gpus->status().ok(), gpus->count() > 0) << gpus->status();
  for (int i = 0; i < gpus->count(); ++i) {
    ASSERT_OK_AND_ASSIGN(const DeviceInfo info, gpus->Describe(Device(i)));
    EXPECT_FALSE(info.name.empty());
    EXPECT_GT(info.memory, GiB(1));
  }
}

/// A file that is not there stands for a machine without CUDA.
TEST(DeviceRuntime, WithoutALibraryEverythingIsAnError) {
  const auto gpus = DeviceRuntime::Open({.library = "/nowhere/libcudart.so.13"});
  EXPECT_EQ(gpus->count(), 0);
  const auto is_refused = StatusIs(StatusCode::kFailedPrecondition, HasSubstr("no GPU"));
  EXPECT_THAT(gpus->status(), is_refused);
  EXPECT_THAT(gpus->description(), HasSubstr("no GPU"));
  int x = 0;
  EXPECT_THAT(gpus->Describe(Device(0)), is_refused);
  EXPECT_THAT(gpus->current(), is_refused);
  EXPECT_THAT(gpus->SetCurrent(Device(0)), is_refused);
  EXPECT_THAT(gpus->CanAccessPeer(Device(0), Device(1)), is_refused);
  EXPECT_THAT(gpus->Locate(&x), is_refused);
  EXPECT_THAT(gpus->Pin(&x, Bytes(4)), is_refused);
  EXPECT_THAT(gpus->Unpin(&x), is_refused);
  EXPECT_THAT(Stream::Create(gpus, Device(0)), is_refused);
  EXPECT_THAT(Event::Create(gpus, Device(0)), is_refused);
  EXPECT_THAT(DeviceBuffer::Create(gpus, Device(0), Bytes(100)), is_refused);
  Stream stream = Stream::Borrow(gpus, Device(0), nullptr);
  EXPECT_THAT(stream.Copy(&x, &x, Bytes(4)), is_refused);
  EXPECT_THAT(stream.Fill(&x, 0, Bytes(4)), is_refused);
  EXPECT_THAT(stream.Done(), is_refused);
  EXPECT_THAT(stream.Wait(), is_refused);
}

}  // namespace
}  // namespace ait

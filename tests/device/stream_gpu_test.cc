// SPDX-License-Identifier: Apache-2.0
// Streams and events on a real GPU.
#include "ait/device/stream.h"
#include "device/stream_cases.h"

namespace ait {
namespace {

class GpuStreams : public ::testing::Test {
 protected:
  void SetUp() override {
    if (gpus_->count() == 0) GTEST_SKIP() << gpus_->status();
  }
  std::shared_ptr<DeviceRuntime> gpus_ = DeviceRuntime::Open();
};

TEST_F(GpuStreams, CopyThereAndBack) { testing::CopyThereAndBack(gpus_); }
TEST_F(GpuStreams, EventsOrderStreams) { testing::EventsOrderStreams(gpus_); }
TEST_F(GpuStreams, EventsTellTime) { testing::EventsTellTime(gpus_); }

}  // namespace
}  // namespace ait

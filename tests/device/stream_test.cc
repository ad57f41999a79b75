// SPDX-License-Identifier: Apache-2.0
// Streams and events on the fake GPU; stream_gpu_test.cc does the same on a real one.
#include "ait/device/stream.h"

#include "device/stream_cases.h"
#include "support/fake_gpu.h"

namespace ait {
namespace {

class Streams : public ::testing::Test {
 protected:
  Streams() { testing::ResetFakeGpu(); }
  std::shared_ptr<DeviceRuntime> gpus_ =
      DeviceRuntime::Open({.library = testing::FakeGpuLibrary()});
};

TEST_F(Streams, CopyThereAndBack) { testing::CopyThereAndBack(gpus_); }
TEST_F(Streams, EventsOrderStreams) { testing::EventsOrderStreams(gpus_); }
TEST_F(Streams, EventsTellTime) { testing::EventsTellTime(gpus_); }

TEST_F(Streams, GiveBackTheirHandles) {
  const auto counted = [] {
    const auto counts = testing::FakeGpuCounted();
    return std::pair(counts.streams, counts.events);
  };
  const auto before = counted();
  {
    ASSERT_OK_AND_ASSIGN(Stream stream, Stream::Create(gpus_, Device(0)));
    ASSERT_OK_AND_ASSIGN(Event event, Event::Create(gpus_, Device(0)));
    Stream moved = std::move(stream);
    const Stream borrowed = Stream::Borrow(gpus_, Device(0), moved.native());
    EXPECT_EQ(counted(), std::pair(before.first + 1, before.second + 1));
    ASSERT_OK_AND_ASSIGN(moved, Stream::Create(gpus_, Device(1)));
    EXPECT_EQ(moved.device(), Device(1));
  }
  EXPECT_EQ(counted(), before);
}

}  // namespace
}  // namespace ait

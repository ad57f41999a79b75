// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_DEVICE_STREAM_CASES_H_
#define AIT_TESTS_DEVICE_STREAM_CASES_H_

// What streams and events do, on whatever GPU.

#include <memory>
#include <numeric>
#include <vector>

#include "ait/device/buffer.h"
#include "ait/device/stream.h"
#include "support/status_matchers.h"

namespace ait::testing {

using GpusPtr = std::shared_ptr<DeviceRuntime>;

/// Host to device, device to device, device to pinned host.
inline void CopyThereAndBack(const GpusPtr& gpus) {
  constexpr std::size_t kCount = 1000;
  constexpr Bytes kBytes(kCount * sizeof(int));
  std::vector<int> values(kCount);
  std::iota(values.begin(), values.end(), 1);
  ASSERT_OK_AND_ASSIGN(Stream stream, Stream::Create(gpus, Device(0)));
  ASSERT_OK_AND_ASSIGN(const DeviceBuffer a, DeviceBuffer::Create(gpus, Device(0), kBytes));
  ASSERT_OK_AND_ASSIGN(const DeviceBuffer b, DeviceBuffer::Create(gpus, Device(0), kBytes));
  ASSERT_OK_AND_ASSIGN(const DeviceBuffer pinned,
                       DeviceBuffer::Create(gpus, Device(0), kBytes, MemoryPlace::kPinned));
  ASSERT_OK(stream.Copy(a.data(), values.data(), kBytes));
  ASSERT_OK(stream.Copy(b.data(), a.data(), kBytes));
  ASSERT_OK(stream.Fill(b.data(), 0, Bytes(sizeof(int))));
  ASSERT_OK(stream.Copy(pinned.data(), b.data(), kBytes));
  ASSERT_OK(stream.Wait());
  ASSERT_OK_AND_ASSIGN(const bool done, stream.Done());
  EXPECT_TRUE(done);
  values[0] = 0;
  const int* seen = static_cast<const int*>(pinned.data());
  EXPECT_EQ(std::vector<int>(seen, seen + kCount), values);
}

/// A stream that waits for an event of another sees what came before it.
inline void EventsOrderStreams(const GpusPtr& gpus) {
  constexpr Bytes kBytes = MiB(4);
  ASSERT_OK_AND_ASSIGN(Stream first, Stream::Create(gpus, Device(0)));
  ASSERT_OK_AND_ASSIGN(Stream second, Stream::Create(gpus, Device(0)));
  ASSERT_OK_AND_ASSIGN(const DeviceBuffer memory, DeviceBuffer::Create(gpus, Device(0), kBytes));
  ASSERT_OK_AND_ASSIGN(const DeviceBuffer pinned,
                       DeviceBuffer::Create(gpus, Device(0), kBytes, MemoryPlace::kPinned));
  ASSERT_OK_AND_ASSIGN(Event filled, Event::Create(gpus, Device(0)));
  ASSERT_OK_AND_ASSIGN(const bool unmarked, filled.Done());
  EXPECT_TRUE(unmarked);
  for (int round = 1; round <= 5; ++round) {
    ASSERT_OK(first.Fill(memory.data(), round, kBytes));
    ASSERT_OK(filled.Record(first));
    ASSERT_OK(second.WaitFor(filled));
    ASSERT_OK(second.Copy(pinned.data(), memory.data(), kBytes));
    ASSERT_OK(second.Wait());
    ASSERT_OK(filled.Wait());
    const char* bytes = static_cast<const char*>(pinned.data());
    EXPECT_EQ(bytes[0], round);
    EXPECT_EQ(bytes[kBytes.value() - 1], round);
  }
}

inline void EventsTellTime(const GpusPtr& gpus) {
  ASSERT_OK_AND_ASSIGN(Stream stream, Stream::Create(gpus, Device(0)));
  ASSERT_OK_AND_ASSIGN(Event start, Event::Create(gpus, Device(0), EventTiming::kOn));
  ASSERT_OK_AND_ASSIGN(Event end, Event::Create(gpus, Device(0), EventTiming::kOn));
  ASSERT_OK_AND_ASSIGN(Event untimed, Event::Create(gpus, Device(0)));
  ASSERT_OK_AND_ASSIGN(const DeviceBuffer memory, DeviceBuffer::Create(gpus, Device(0), MiB(1)));
  ASSERT_OK(start.Record(stream));
  ASSERT_OK(stream.Fill(memory.data(), 1, MiB(1)));
  ASSERT_OK(end.Record(stream));
  ASSERT_OK(untimed.Record(stream));
  ASSERT_OK(stream.Wait());
  ASSERT_OK_AND_ASSIGN(const std::chrono::nanoseconds time, end.Since(start));
  EXPECT_GE(time.count(), 0);
  EXPECT_FALSE(untimed.Since(start).ok());
}

}  // namespace ait::testing

#endif  // AIT_TESTS_DEVICE_STREAM_CASES_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DEVICE_STREAM_H_
#define AIT_DEVICE_STREAM_H_

// Streams, in which a device works off what it is given one after the other, and events, which mark
// a place in a stream.
//
//   AIT_ASSIGN_OR_RETURN(Stream stream, Stream::Create(gpus, Device(0)));
//   AIT_ASSIGN_OR_RETURN(Event copied, Event::Create(gpus, Device(0)));
//   AIT_RETURN_IF_ERROR(stream.Copy(to, from, Bytes(1024)));
//   AIT_RETURN_IF_ERROR(copied.Record(stream));
//   while (!*copied.Done()) Compute();                // or copied.Wait(), or other.WaitFor(copied)
//
// Both are movable owners; the runtime lives as long as they do. What goes wrong in a stream is the
// error of a later call. **Thread-safety.** As of an int.

#include <chrono>
#include <memory>
#include <utility>

#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/device/runtime.h"

namespace ait::inline v0 {

class Event;

class Stream {
 public:
  /// A stream that does not wait for the default stream.
  static StatusOr<Stream> Create(std::shared_ptr<DeviceRuntime> runtime, Device device);
  /// A stream that somebody else owns, such as libtorch's current one: a `cudaStream_t`. Null is
  /// the default stream of `device`.
  static Stream Borrow(std::shared_ptr<DeviceRuntime> runtime, Device device, void* native);

  Stream(Stream&& other) noexcept { *this = std::move(other); }
  Stream& operator=(Stream&& other) noexcept;
  /// What was given to the stream still runs to its end.
  ~Stream();

  Device device() const { return device_; }
  /// The `cudaStream_t`.
  void* native() const { return native_; }

  /// Copies between any two of host, pinned and device memory. Returns at once only if neither is
  /// kHost. Both stay valid until the stream has come past.
  Status Copy(void* to, const void* from, Bytes bytes);
  /// Sets every byte of device memory.
  Status Fill(void* to, int value, Bytes bytes);
  /// What is given to this stream later starts after `event`.
  Status WaitFor(const Event& event);
  /// True if everything given so far has ended.
  StatusOr<bool> Done() const;
  /// **Blocks.** Until everything given so far has ended.
  Status Wait() const;

 private:
  Stream(std::shared_ptr<DeviceRuntime> runtime, Device device, void* native, bool owned)
      : runtime_(std::move(runtime)), device_(device), native_(native), owned_(owned) {}

  std::shared_ptr<DeviceRuntime> runtime_;
  Device device_;
  void* native_ = nullptr;
  bool owned_ = false;
};

enum class EventTiming { kOff, kOn };

class Event {
 public:
  /// With `kOn` the time between two events can be told, and recording costs more.
  static StatusOr<Event> Create(std::shared_ptr<DeviceRuntime> runtime, Device device,
                                EventTiming timing = EventTiming::kOff);

  Event(Event&& other) noexcept { *this = std::move(other); }
  Event& operator=(Event&& other) noexcept;
  ~Event();

  /// The `cudaEvent_t`.
  void* native() const { return native_; }

  /// Marks the place that `stream`, of the same device, has come to. Replaces an earlier mark.
  Status Record(const Stream& stream);
  /// True if the stream has passed the mark; also if there is none.
  StatusOr<bool> Done() const;
  /// **Blocks.** Until the stream has passed the mark.
  Status Wait() const;
  /// Device time from `start` to this event, both passed and made with `kOn`.
  StatusOr<std::chrono::nanoseconds> Since(const Event& start) const;

 private:
  friend class Stream;
  Event(std::shared_ptr<DeviceRuntime> runtime, void* native)
      : runtime_(std::move(runtime)), native_(native) {}

  std::shared_ptr<DeviceRuntime> runtime_;
  void* native_ = nullptr;
};

}  // namespace ait::inline v0

#endif  // AIT_DEVICE_STREAM_H_

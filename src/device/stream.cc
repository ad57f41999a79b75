// SPDX-License-Identifier: Apache-2.0
#include "ait/device/stream.h"

#include "device/device_api.h"

namespace ait::inline v0 {

StatusOr<Stream> Stream::Create(std::shared_ptr<DeviceRuntime> runtime, Device device) {
  AIT_RETURN_IF_ERROR(runtime->status());
  AIT_ASSIGN_OR_RETURN(void* const native, runtime->api().CreateStream(device));
  return Stream(std::move(runtime), device, native, /*owned=*/true);
}

Stream Stream::Borrow(std::shared_ptr<DeviceRuntime> runtime, Device device, void* native) {
  return Stream(std::move(runtime), device, native, /*owned=*/false);
}

Stream& Stream::operator=(Stream&& other) noexcept {
  if (this == &other) return *this;
  if (owned_) runtime_->api().DestroyStream(native_);
  runtime_ = std::move(other.runtime_);
  device_ = other.device_;
  native_ = std::exchange(other.native_, nullptr);
  owned_ = std::exchange(other.owned_, false);
  return *this;
}

Stream::~Stream() {
  if (owned_) runtime_->api().DestroyStream(native_);
}

Status Stream::Copy(void* to, const void* from, Bytes bytes) {
  if (bytes == Bytes(0)) return OkStatus();
  return runtime_->api().Copy(device_, native_, to, from, bytes);
}

Status Stream::Fill(void* to, int value, Bytes bytes) {
  if (bytes == Bytes(0)) return OkStatus();
  return runtime_->api().Fill(device_, native_, to, value, bytes);
}

Status Stream::WaitFor(const Event& event) {
  return runtime_->api().StreamWaitsFor(device_, native_, event.native_);
}

StatusOr<bool> Stream::Done() const { return runtime_->api().StreamDone(device_, native_); }
Status Stream::Wait() const { return runtime_->api().WaitForStream(device_, native_); }

StatusOr<Event> Event::Create(std::shared_ptr<DeviceRuntime> runtime, Device device,
                              EventTiming timing) {
  AIT_RETURN_IF_ERROR(runtime->status());
  AIT_ASSIGN_OR_RETURN(void* const native,
                       runtime->api().CreateEvent(device, timing == EventTiming::kOn));
  return Event(std::move(runtime), native);
}

Event& Event::operator=(Event&& other) noexcept {
  if (this == &other) return *this;
  if (native_ != nullptr) runtime_->api().DestroyEvent(native_);
  runtime_ = std::move(other.runtime_);
  native_ = std::exchange(other.native_, nullptr);
  return *this;
}

Event::~Event() {
  if (native_ != nullptr) runtime_->api().DestroyEvent(native_);
}

Status Event::Record(const Stream& stream) {
  return runtime_->api().RecordEvent(stream.device(), stream.native(), native_);
}

StatusOr<bool> Event::Done() const { return runtime_->api().EventDone(native_); }
Status Event::Wait() const { return runtime_->api().WaitForEvent(native_); }

StatusOr<std::chrono::nanoseconds> Event::Since(const Event& start) const {
  AIT_ASSIGN_OR_RETURN(const float milliseconds,
                       runtime_->api().MillisecondsBetween(start.native_, native_));
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
      std::chrono::duration<float, std::milli>(milliseconds));
}

}  // namespace ait::inline v0

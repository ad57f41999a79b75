// SPDX-License-Identifier: Apache-2.0
#include "activation/offload_device_internal.h"

namespace ait::inline v0::internal {

StatusOr<std::unique_ptr<DeviceCopier>> DeviceCopier::Create(std::shared_ptr<DeviceRuntime> runtime,
                                                             Device device) {
  AIT_ASSIGN_OR_RETURN(Stream side, Stream::Create(runtime, device));
  return std::unique_ptr<DeviceCopier>(
      new DeviceCopier(std::move(runtime), device, std::move(side)));
}

StatusOr<Event> DeviceCopier::Start(void* to, const void* from, Bytes bytes, void* compute) {
  AIT_ASSIGN_OR_RETURN(Event ready, Event::Create(runtime_, device_));
  AIT_ASSIGN_OR_RETURN(Event copied, Event::Create(runtime_, device_));
  AIT_RETURN_IF_ERROR(ready.Record(Stream::Borrow(runtime_, device_, compute)));
  AIT_RETURN_IF_ERROR(side_.WaitFor(ready));
  AIT_RETURN_IF_ERROR(side_.Copy(to, from, bytes));
  if (Status recorded = copied.Record(side_); !recorded.ok()) {
    side_.Wait().IgnoreError();  // the caller may free what it gave
    return recorded;
  }
  return copied;
}

Status DeviceCopier::Await(const Event& copied, void* compute) {
  Stream stream = Stream::Borrow(runtime_, device_, compute);
  return stream.WaitFor(copied);
}

}  // namespace ait::inline v0::internal

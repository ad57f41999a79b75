// SPDX-License-Identifier: Apache-2.0
#include "data/loader/device_copies_internal.h"

#include <utility>

namespace ait::inline v0 {
namespace internal {

StatusOr<std::unique_ptr<DeviceCopies>> DeviceCopies::Create(const DeviceCopyOptions& options) {
  if (options.gpus == nullptr) return InvalidArgumentError("data loader: device_copy has no gpus");
  AIT_RETURN_IF_ERROR(Annotate(options.gpus->status(), "data loader: device_copy"));
  AIT_ASSIGN_OR_RETURN(Stream side, Stream::Create(options.gpus, options.device));
  return std::unique_ptr<DeviceCopies>(new DeviceCopies(options, std::move(side)));
}

DeviceCopies::~DeviceCopies() { static_cast<void>(side_.Wait().ok()); }

StatusOr<std::unique_ptr<DeviceSet>> DeviceCopies::Start(DataBatch& batch) {
  std::unique_ptr<DeviceSet> set;
  if (free_.empty()) {
    AIT_ASSIGN_OR_RETURN(Event copied, Event::Create(options_.gpus, options_.device));
    AIT_ASSIGN_OR_RETURN(Event released, Event::Create(options_.gpus, options_.device));
    set = std::make_unique<DeviceSet>(std::move(copied), std::move(released));
  } else {
    // The one that was given back first: its batch is used up soonest.
    set = std::move(free_.front());
    free_.erase(free_.begin());
  }
  AIT_RETURN_IF_ERROR(side_.WaitFor(set->released));
  if (set->buffers.size() < batch.arrays.size()) set->buffers.resize(batch.arrays.size());
  for (std::size_t i = 0; i < batch.arrays.size(); ++i) {
    BatchArray& array = batch.arrays[i];
    const Bytes bytes(static_cast<std::int64_t>(array.size_bytes()));
    if (bytes.value() == 0) continue;
    DeviceBuffer& buffer = set->buffers[i];
    if (buffer.size() < bytes) {
      AIT_RETURN_IF_ERROR(set->released.Wait());
      AIT_ASSIGN_OR_RETURN(buffer, DeviceBuffer::Create(options_.gpus, options_.device, bytes));
    }
    const Status copied = side_.Copy(buffer.data(), array.buffer.data(), bytes);
    if (!copied.ok()) {
      static_cast<void>(side_.Wait().ok());  // those before it are read no more
      return Annotate(copied, StrCat("copying \"", array.name, "\" of a batch to the device"));
    }
    array.device = buffer.data();
  }
  AIT_RETURN_IF_ERROR(set->copied.Record(side_));
  return set;
}

Status DeviceCopies::HandOut(const DeviceSet& set) { return consumer_.WaitFor(set.copied); }

Status DeviceCopies::Release(DeviceSet& set) { return set.released.Record(consumer_); }

}  // namespace internal
}  // namespace ait::inline v0

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_LOADER_DEVICE_COPIES_INTERNAL_H_
#define AIT_DATA_LOADER_DEVICE_COPIES_INTERNAL_H_

// Copies of batches on a GPU: one stream for the copies, two or three sets of buffers that go round.

#include <memory>
#include <vector>

#include "ait/base/status.h"
#include "ait/data/loader/data_loader.h"
#include "ait/device/buffer.h"
#include "ait/device/stream.h"

namespace ait::inline v0 {
namespace internal {

/// Memory of the device for the arrays of one batch.
struct DeviceSet {
  DeviceSet(Event copied_event, Event released_event)
      : copied(std::move(copied_event)), released(std::move(released_event)) {}

  std::vector<DeviceBuffer> buffers;
  Event copied;    // the host's bytes have been read
  Event released;  // the consumer's stream needs the set no more
};

/// **Thread-safety.** One thread at a time.
class DeviceCopies {
 public:
  /// **Errors.** InvalidArgument: no GPUs, or no such device.
  static StatusOr<std::unique_ptr<DeviceCopies>> Create(const DeviceCopyOptions& options);
  /// Waits for copies under way.
  ~DeviceCopies();

  /// Starts to copy all arrays of a batch, which then know where.
  StatusOr<std::unique_ptr<DeviceSet>> Start(DataBatch& batch);
  /// What the consumer's stream is given from now on comes after the copy.
  Status HandOut(const DeviceSet& set);
  /// The consumer has given its stream all that needs the set. The host's bytes are still read until
  /// `copied`.
  Status Release(DeviceSet& set);
  /// Takes a set back whose copy has ended.
  void PutBack(std::unique_ptr<DeviceSet> set) { free_.push_back(std::move(set)); }
  /// **Blocks.** Until all copies have ended.
  Status Wait() { return side_.Wait(); }

 private:
  DeviceCopies(const DeviceCopyOptions& options, Stream side)
      : options_(options),
        side_(std::move(side)),
        consumer_(Stream::Borrow(options.gpus, options.device, options.consumer_stream)) {}

  DeviceCopyOptions options_;
  Stream side_;
  Stream consumer_;
  std::vector<std::unique_ptr<DeviceSet>> free_;
};

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_LOADER_DEVICE_COPIES_INTERNAL_H_

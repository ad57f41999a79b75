// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TENSOR_STAGING_H_
#define AIT_TENSOR_STAGING_H_

// Copies between tensors of the host and of a GPU that do not wait, through staging memory of any
// resource.
//
// A GPU copies by itself only from and to pinned memory; out of ordinary memory a copy that is called
// `non_blocking` waits after all. A staging area takes the bytes of a host tensor into a pinned block
// at once, so that the tensor can be reused, lets the GPU copy from there, and gives the block back
// when the GPU has passed. One area for each GPU, with pinned memory of the node that the GPU is on:
//
//   AIT_ASSIGN_OR_RETURN(auto staging, Staging::Create({.memory = pinned_of_node_1,
//                                                       .device = Device(4)}));
//   AIT_ASSIGN_OR_RETURN(StagedCopy copy, staging->Copy(batch_on_gpu, batch));   // returns
//   AIT_RETURN_IF_ERROR(copy.Before(stream));            // what `stream` gets next comes after it
//   ...
//   AIT_ASSIGN_OR_RETURN(StagedCopy back, staging->Copy(loss, loss_on_gpu));
//   AIT_RETURN_IF_ERROR(back.Wait());                    // now the bytes are in `loss`
//
// Without a GPU, and between two tensors of the host, a copy is a plain one and done when it returns:
// the same program runs on both. A host tensor that is pinned already is not staged: the GPU copies
// from or to it directly, and it stays unchanged until the copy is done.
//
// The memory of GPU tensors is libtorch's own ("device_memory.h" looks at it). **Thread-safety.** Of
// Staging: any thread. Of StagedCopy: as of an int.

#include <cstdint>
#include <memory>
#include <utility>

#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/device/runtime.h"
#include "ait/device/stream.h"
#include "ait/memory/resource.h"

namespace at {
class Tensor;
}  // namespace at

namespace ait::inline v0 {

struct StagingOptions {
  /// Of the staging blocks; best pinned for the device, and a pool. Empty: a pool over ordinary
  /// memory of the host, from which a GPU's copies wait.
  MemoryHandle memory = {};
  std::shared_ptr<DeviceRuntime> gpus = nullptr;  ///< null: DeviceRuntime::Open()
  Device device{0};                               ///< the GPU whose tensors are copied
  Bytes max_in_flight = MiB(256);  ///< of blocks; beyond, a copy waits for the oldest ones
};

class Staging;

/// A copy on its way. Keeps both tensors alive.
class [[nodiscard]] StagedCopy {
 public:
  StagedCopy(StagedCopy&& other) noexcept;
  StagedCopy& operator=(StagedCopy&& other) noexcept;
  /// A copy to the host that nobody waited for does not arrive in its tensor.
  ~StagedCopy();

  /// What `stream`, of the same device, gets next starts after the copy to or from the device.
  Status Before(Stream& stream) const;
  /// True if Wait returns at once.
  StatusOr<bool> Done() const;
  /// **Blocks.** Until all bytes are where they belong.
  Status Wait();

 private:
  friend class Staging;
  struct State;
  explicit StagedCopy(std::shared_ptr<State> state);

  std::shared_ptr<State> state_;
};

struct StagingStatistics {
  std::int64_t copy_count = 0;       ///< asked for so far
  std::int64_t staged_count = 0;     ///< of them through a block
  std::int64_t waited_count = 0;     ///< of them that waited because of max_in_flight
  std::int64_t in_flight_bytes = 0;  ///< of blocks, now
};

class Staging {
 public:
  /// **Errors.** InvalidArgument: a bound below 1, memory of a device, or, where there are GPUs, no
  /// such device.
  static StatusOr<std::shared_ptr<Staging>> Create(StagingOptions options = {});
  /// Waits for the copies on their way.
  ~Staging();

  /// Copies all of `from` into `to`: contiguous, of one dtype and shape, each on the CPU or on the
  /// device of this area. The copy comes after what `after` holds so far (the stream that computed
  /// `from`, or that last read `to`); null: after nothing.
  /// **Errors.** InvalidArgument: other tensors; FailedPrecondition: a tensor of a GPU, and no GPU;
  /// ResourceExhausted: no staging memory.
  StatusOr<StagedCopy> Copy(const at::Tensor& to, const at::Tensor& from,
                            const Stream* after = nullptr);

  StagingStatistics statistics() const;

 private:
  struct Impl;
  explicit Staging(std::unique_ptr<Impl> impl);

  const std::unique_ptr<Impl> impl_;
};

}  // namespace ait::inline v0

#endif  // AIT_TENSOR_STAGING_H_

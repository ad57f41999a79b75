// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_ACTIVATION_OFFLOAD_H_
#define AIT_ACTIVATION_OFFLOAD_H_

// Saved tensors that wait for backward somewhere else: in blocks of a memory resource, or in a file.
//
// In forward a saved tensor is copied out beside the computation and its memory is given back; in
// backward the tensors are brought in again in the reverse order, ahead of their use. Losses and
// gradients are bit for bit those without offload.
//
//   AIT_ASSIGN_OR_RETURN(auto offload, ActivationOffload::Create({.directory = "/nvme/scratch"}));
//   {
//     const SavedTensorScope scope(offload);             // saved_tensors.h
//     loss = Loss(model->forward(inputs), targets);
//   }
//   loss.backward();
//
// **When it helps.** On a GPU, whose memory is what is short: blocks of pinned memory on its node.
// For tensors of the processor only if the target is other memory than theirs: another node, a
// memory expander, a file on a local disk; copies to memory of the same node give nothing back.
// It costs the bytes twice over the link, hidden as far as computation takes longer. Recomputing
// (checkpoint.h) often costs less; compression (compression.h) makes what is moved smaller.
//
// What is moved is the range of memory that a tensor lies in, once, however many tensors lie there
// and however often they are saved. A tensor stays as it is if it is small, a parameter, resident, sparse or a
// thin view of a large tensor, and if the target has no room (counted in `statistics`). One that is
// changed in place before backward is an error of backward, as without offload.
//
// **Thread-safety.** All calls may come from any thread. The thread that copies does not survive a
// fork; the child must not use the graph.

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ait/activation/saved_tensors.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/memory/resource.h"

namespace ait::inline v0 {

class DeviceRuntime;

struct OffloadOptions {
  /// Where tensors go: blocks of this memory, one for each range that is moved. Give memory that
  /// reuses blocks (a pool), pinned if tensors lie on a GPU.
  MemoryHandle memory;
  /// Or a file without a name in this directory of a local disk. One of both is given.
  std::string directory;

  /// Ranges of fewer bytes stay.
  Bytes at_least = KiB(256);
  /// Bytes that wait to be copied out and still take their old memory; more make forward wait.
  Bytes in_flight = MiB(256);
  /// Bytes that are brought in ahead of their use.
  Bytes ahead = MiB(128);
  /// For tensors on GPUs, to memory; without it they stay. Copies run on a stream of their own.
  std::shared_ptr<DeviceRuntime> gpus;

  /// **Errors.** InvalidArgument: no target or two, GPUs with a file, or a negative size.
  Status Validate() const;
};

/// Since creation, unless it says otherwise.
struct OffloadStatistics {
  std::int64_t saved = 0;   // tensors that autograd has saved
  std::int64_t moved = 0;   // of them: given to the target, or in a range that is there already
  std::int64_t shared = 0;  // of those moved: in a range that was there already
  // The rest stayed, because they were…
  std::int64_t small = 0;
  std::int64_t resident = 0;
  std::int64_t unsupported = 0;  // sparse, quantized, a thin view, on a device without a runtime
  std::int64_t refused = 0;      // the target had no room, or failed; `refusal` says why
  Status refusal;                // the last one

  std::int64_t bytes_out = 0;
  std::int64_t bytes_in = 0;
  std::int64_t stored_bytes = 0;  // in the target now
  std::int64_t stored_peak_bytes = 0;
  std::int64_t used_early = 0;  // ranges that backward wanted before they had been moved
  std::int64_t out_waits = 0;   // times that forward waited because of `in_flight`
  std::int64_t in_waits = 0;    // times that backward waited for bytes, or brought them itself
  std::chrono::nanoseconds out_waited{0};
  std::chrono::nanoseconds in_waited{0};
};

class ActivationOffload final : public SavedTensorPolicy {
 public:
  /// **Errors.** Those of OffloadOptions::Validate; NotFound, PermissionDenied: the directory;
  /// ResourceExhausted: the system gives no thread.
  static StatusOr<std::shared_ptr<ActivationOffload>> Create(OffloadOptions options);
  /// **Blocks.** Until nothing is being copied. Graphs that are alive keep what they need.
  ~ActivationOffload() override;
  ActivationOffload(const ActivationOffload&) = delete;
  ActivationOffload& operator=(const ActivationOffload&) = delete;

  /// Tensors that stay in memory anyway (frozen parameters, inputs, tables), with all that shares
  /// their memory: they are never moved. Does not keep them alive. Parameters that require a
  /// gradient are known without.
  void KeepResident(std::span<const at::Tensor> tensors);
  void KeepResident(const std::vector<at::Tensor>& tensors);

  std::unique_ptr<SavedTensor> Save(const at::Tensor& tensor) override;
  bool TakesParameters() const override { return false; }

  OffloadStatistics statistics() const;
  /// Where and how: "/nvme (ext4): buffered", "blocks of heap".
  std::string Describe() const;

  class Impl;

 private:
  explicit ActivationOffload(std::shared_ptr<Impl> impl);
  std::shared_ptr<Impl> impl_;  // with the saved tensors
};

}  // namespace ait::inline v0

#endif  // AIT_ACTIVATION_OFFLOAD_H_

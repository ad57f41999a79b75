// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_HOST_OFFLOAD_H_
#define AIT_OPTIM_HOST_OFFLOAD_H_

// The optimizer of a model on a GPU on the host: parameters and gradients lie on the device,
// masters and states in memory of the host, and the processor updates them.
//
// An update is a pipeline of chunks: while the gradients of chunk k + 1 come down, chunk k is
// updated, and the new parameters of chunk k − 1 go up. The bits are those of the optimizer itself.
//
//   AIT_ASSIGN_OR_RETURN(auto offload, HostOffload::Create(AdamW{}, layout, {.runtime = gpus}));
//   AIT_RETURN_IF_ERROR(offload->TakeParameters({0, parameters}));     // as they are on the device
//   …backward…                                                        // on a stream
//   AIT_RETURN_IF_ERROR(offload->BeginStep({.gradient_scale = 1 / tokens}));
//   AIT_RETURN_IF_ERROR(offload->Update({0, parameters, gradients, &backward_done}));
//   AIT_RETURN_IF_ERROR(offload->Await(stream));                       // before the next forward
//
// **While backward still runs** `Update` can be called for the gradients that are final already (a
// bucket that has been reduced), from a thread of its own, if `gradient_scale` is known: that is
// without clipping by the global norm and without skipping of steps that are not finite, whose
// decision needs all gradients. With them, `Fetch` brings gradients down while backward runs
// (HostGradients::kWhole), `FetchedGradients` gives them to the norm (ait/optim/norm.h), and `Update` only
// computes and sends up.
//
// What lies on the host: the state of the optimizer; in pinned memory a mirror of the parameters in
// their dtype, which for fp32 is the master, and the gradients on their way. State is never copied
// to the device, so it is not pinned, and may be in a file (BindOptions::offload).

#include <cstdint>
#include <memory>
#include <span>

#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/buffer.h"
#include "ait/device/runtime.h"
#include "ait/device/stream.h"
#include "ait/optim/optimizer.h"
#include "ait/optim/parameter_layout.h"

namespace ait::inline v0 {

/// How much of the gradients is on the host at once.
enum class HostGradients : std::uint8_t {
  kChunks,  // those on their way
  kWhole,   // all that this rank owns: `Fetch` may run ahead of the update
};

struct HostOffloadOptions {
  std::shared_ptr<DeviceRuntime> runtime;
  Device device = Device(0);
  DType gradient_dtype = DType::kFloat32;  // fp32, bf16 or fp16
  HostGradients gradients = HostGradients::kChunks;
  std::int64_t chunk_elements = 1 << 20;  // updated at a time; at least 4096
  int chunks = 3;                         // of gradients on their way, 2 to 64
  BindOptions bind;                       // the dtype of the parameters among them
};

/// A part of the owned elements, in device memory. The range lies inside one owned range.
struct DeviceSlice {
  std::int64_t begin = 0;
  Buffer parameters;             // written
  Buffer gradients;              // read; set to zero with GradientsAfter::kZero
  const Event* ready = nullptr;  // after which gradients are final and parameters not read; or null
};

/// **Thread-safety.** None; it may be a thread of its own.
/// **Errors.** Those of the device runtime: what was begun has ended when they are returned, and
/// the step is half done. InvalidArgument: as of BoundOptimizer.
class HostOffload {
 public:
  /// **Errors.** Those of a runtime without a device, of pinned memory, and of Optimizer::Bind.
  /// Unimplemented: an optimizer of whole parameters.
  static StatusOr<std::unique_ptr<HostOffload>> Create(const Optimizer& optimizer,
                                                       const ParameterLayout& layout,
                                                       HostOffloadOptions options);
  /// **Blocks.** Until nothing is on its way.
  ~HostOffload();
  HostOffload(const HostOffload&) = delete;
  HostOffload& operator=(const HostOffload&) = delete;

  /// **Blocks.** Takes the parameters of a slice from the device, as those to begin with.
  Status TakeParameters(const DeviceSlice& slice);
  /// **Blocks.** Makes exact values the parameters, on host and device.
  Status SetParameters(const DeviceSlice& slice, std::span<const float> values);
  /// The exact values of elements from `begin` on, all of one owned range.
  Status GetParameters(std::int64_t begin, std::span<float> values);

  /// Begins to bring the gradients of a slice down; with HostGradients::kWhole only.
  Status Fetch(const DeviceSlice& slice);
  /// **Blocks.** Until they are there: gradients of a slice that was fetched, on the host.
  StatusOr<ConstBuffer> FetchedGradients(std::int64_t begin, std::int64_t count);
  /// Forgets what was fetched: the step is skipped.
  void DiscardFetched();

  /// **Blocks.** Until the parameters of the last step are up. Otherwise as of BoundOptimizer.
  Status BeginStep(const StepOptions& options);
  /// **Blocks.** Until the slice is updated on the host; its last chunks are still on their way up.
  /// Takes the gradients that `Fetch` has brought for a slice of the same begin and count, else
  /// brings them.
  Status Update(const DeviceSlice& slice);
  /// What is given to `stream` later sees the new parameters, and gradients that are zero.
  Status Await(Stream& stream);
  /// **Blocks.** Until the device has them.
  Status Wait();

  /// State and step, for checkpoints and reports.
  BoundOptimizer& optimizer();
  /// Bytes of pinned memory.
  std::int64_t pinned_bytes() const;

 private:
  struct Impl;
  explicit HostOffload(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ait::inline v0

#endif  // AIT_OPTIM_HOST_OFFLOAD_H_

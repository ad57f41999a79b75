// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_CUDA_ADAMW_H_
#define AIT_OPTIM_CUDA_ADAMW_H_

// The update of AdamW on a GPU: one kernel, given to a stream, with the formulas of ait/optim/adam.h
// and, operation by operation, those of the processor's kernels (no contraction to fused
// multiply-add, correctly rounded division and square root), so that both give the same bits.
//
// Parameters are fp32, or bf16 with an fp32 master; gradients are fp32 or bf16. All memory is the
// caller's, on the device: this class holds the loaded kernels and the options, and no state.
//
//   AIT_ASSIGN_OR_RETURN(auto adamw, CudaAdamW::Create(Device(0), {.learning_rate = 3e-4}));
//   AIT_RETURN_IF_ERROR(adamw->Update(stream, step, {.gradient_scale = clip / tokens},
//       {.parameters = p, .gradients = g, .exp_avg = m, .exp_avg_sq = v, .count = n}));
//
// Kernels are compiled where CMake finds nvcc, and loaded through the driver when asked for: a
// program needs neither to link or to start. Not tested on a GPU by its authors; the test that
// compares it with AdamW runs wherever there is one.
//
// **Thread-safety.** All calls may come from any thread.

#include <cstdint>
#include <memory>

#include "ait/base/dtype.h"
#include "ait/base/status.h"
#include "ait/device/runtime.h"
#include "ait/optim/adam.h"

namespace ait::inline v0 {

/// Elements of one step, all in memory of the device; arrays do not overlap.
struct CudaAdamWSlice {
  void* parameters = nullptr;               // of `parameter_dtype`
  DType parameter_dtype = DType::kFloat32;  // kFloat32 or kBFloat16
  float* master = nullptr;                  // of bf16 parameters; null for fp32
  void* gradients = nullptr;                // of `gradient_dtype`
  DType gradient_dtype = DType::kFloat32;   // kFloat32 or kBFloat16
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  std::int64_t count = 0;
};

class CudaAdamW {
 public:
  /// Loads the kernels onto the device.
  /// **Errors.** FailedPrecondition: no nvcc when ait was built, no driver, no device of that
  /// number; InvalidArgument: an option, or one that needs AMSGrad or state in 8 bits.
  static StatusOr<std::unique_ptr<CudaAdamW>> Create(Device device, AdamWOptions options = {});
  virtual ~CudaAdamW() = default;

  /// Gives the update of step `step` ≥ 1 to a stream of the device (a `cudaStream_t`; null is its
  /// default stream) and returns at once. **Errors.** InvalidArgument: a number, dtype or pointer;
  /// Internal: those of the driver.
  virtual Status Update(void* stream, std::int64_t step, const StepOptions& options,
                        const CudaAdamWSlice& slice) = 0;
};

}  // namespace ait::inline v0

#endif  // AIT_OPTIM_CUDA_ADAMW_H_

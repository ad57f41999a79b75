// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_DATA_PARALLEL_IMPL_H_
#define AIT_PARALLEL_DATA_PARALLEL_IMPL_H_

// The engine behind the door: the state machine of a step. Hooks call `OnGradient`; everything else
// is called by the methods of the same name in the public class.

#include <memory>
#include <string>
#include <vector>

#include "ait/comm/communicator.h"
#include "ait/parallel/data_parallel.h"
#include "parallel/bucket_reducer_internal.h"
#include "parallel/compression_lease_internal.h"
#include "parallel/decision_internal.h"
#include "parallel/gradient_store_internal.h"
#include "parallel/parameter_store_internal.h"

namespace torch::autograd {
struct Node;
}

namespace ait::inline v0 {

class DataParallel::Impl {
 public:
  Impl(std::shared_ptr<Communicator> communicator, DataParallelOptions options, FlatLayout layout,
       internal::CompressionLease compression);
  ~Impl();

  /// **Errors.** FailedPrecondition that names a parameter which another engine holds.
  static Status CheckFree(const NamedTensors& parameters);

  Status Start(NamedTensors parameters);
  Status SetOptimizer(const Optimizer& optimizer, SimdLevel max_simd_level);
  Status BeginMicroStep(MicroStep micro_step);
  Status Backward(const at::Tensor& loss);
  StatusOr<GradientSummary> FinishGradients(const StepInput& input);
  Status Update(const StepOptions& options);
  Status Discard();
  Status BroadcastBuffers();
  MemoryReport Memory() const;
  StatusOr<CompressionState> SaveCompression() const;
  StatusOr<std::string> LoadCompression(std::span<const CompressionState> states);
  const NamedTensors& parameters() const { return store_->named(); }

  /// Ends the engine: aborts the communicator, so that no peer waits in vain. Returns the reason
  /// with rank, step and phase.
  Status End(const Status& reason, const char* phase);

  std::shared_ptr<Communicator> communicator;
  DataParallelOptions options;
  FlatLayout layout;
  StepCounters counters;
  Status ended;  // ok, or why the engine has ended
  std::vector<std::unique_ptr<BoundOptimizer>> optimizers;

 private:
  // kReady → BeginMicroStep → kAccumulating (back to kReady by the next BeginMicroStep) or
  // kReducing → FinishGradients → kDecided, or kUndecided if the ranks could not → Update or
  // Discard → kReady.
  enum class State { kReady, kAccumulating, kReducing, kDecided, kUndecided };

  // What hooks hold: it outlives the engine, since graphs do.
  struct HookTarget {
    Impl* engine = nullptr;
  };

  class Hook;

  void InstallHooks();
  bool OnGradient(std::size_t handle, const at::Tensor& gradient) noexcept;
  std::string Refusal(std::size_t handle) const;
  Status Usable(const char* call) const;
  Status TakeHookError();
  Status CompleteGradients();
  void CloseStep(GradientCompression::StepEnd end);
  Status BetweenSteps(const char* call) const;
  Status SyncInitialValues();
  Status Broadcast(const at::Tensor& tensor, std::string label);
  OperationOptions Labelled(std::string label) const;

  internal::CompressionLease compression_;
  std::unique_ptr<internal::ParameterStore> store_;
  std::unique_ptr<internal::GradientStore> gradients_;
  std::unique_ptr<internal::BucketReducer> reducer_;
  std::shared_ptr<HookTarget> hook_target_;
  std::vector<std::shared_ptr<torch::autograd::Node>>
      accumulators_;  // a leaf holds its own only weakly
  Executor executor_;

  State state_ = State::kReady;
  std::vector<bool> fired_;       // by handle, in this last micro-step
  Status hook_error_;             // ends the engine at the next call
  Status outside_error_;          // a backward outside of a micro-step: told once
  bool in_step_ = false;          // between the first BeginMicroStep and Update or Discard
  bool backward_called_ = false;  // in this micro-step
  bool in_backward_ = false;      // Backward is on the stack
  Time forward_begin_{};
  Time backward_begin_{};
  Time backward_end_{};
};

}  // namespace ait::inline v0

#endif  // AIT_PARALLEL_DATA_PARALLEL_IMPL_H_

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
#include "parallel/initial_values_internal.h"
#include "parallel/parameter_store_internal.h"
#include "parallel/unit_store_internal.h"

namespace torch::autograd {
struct Node;
}

namespace ait::inline v0 {

class DataParallel::Impl {
 public:
  Impl(std::shared_ptr<Communicator> communicator, DataParallelOptions options, FlatLayout layout,
       internal::CompressionLease compression);
  ~Impl();

  static ReduceWhen WhenReduced(const DataParallelOptions& options);

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
  StatusOr<WholeParameters> GatherFull();
  Status KeepWhole();
  /// **Errors.** FailedPrecondition: a step is not over, or the engine has ended.
  Status BetweenSteps(const char* call) const;
  MemoryReport Memory() const;
  StatusOr<CompressionState> SaveCompression() const;
  StatusOr<std::string> LoadCompression(std::span<const CompressionState> states);
  const NamedTensors& parameters() const { return store_->named(); }

  /// Number of the unit; -1 where a call of it only runs.
  StatusOr<int> FindUnit(std::string_view name) const;
  Status EnterUnit(int unit);
  internal::UnitStore* units() { return units_.get(); }

  /// Ends the engine: aborts the communicator, so that no peer waits in vain. Returns the reason
  /// with rank, step and phase.
  Status End(const Status& reason, const char* phase);
  /// The same with a reason that says it all, and if the engine has not ended.
  void Abort(const Status& reason);

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

  // Of the buckets in one micro-step, where it reduces them. A round is issued to its end when the
  // micro-step is over, but may be in flight until the next one has its first gradient.
  enum class Round { kNone, kFilling, kInFlight };

  // What hooks hold: it outlives the engine, since graphs do.
  struct HookTarget {
    Impl* engine = nullptr;
  };

  class Hook;

  // data_parallel_start.cc
  Status CheckGroups();
  Status AgreeOnInitialValues(const NamedTensors& parameters);
  Status BroadcastParameters();
  Status MakeGradients(const MemoryHandle& memory);
  Status FindPeers();
  Status Broadcast(const at::Tensor& tensor, std::string label);
  void InstallHooks();

  // Hooks, and the rounds of reduction.
  bool OnGradient(std::size_t handle, const at::Tensor& gradient) noexcept;
  std::string Refusal(std::size_t handle) const;
  Status TakeHookError();
  Status OpenRound();
  Status IssueRound();
  Status FinishRound();
  internal::BucketReducer::OnReduced SquaresOnReduced(int b);
  void OnBucket(int b);
  void CloseStep(GradientCompression::StepEnd end);

  // data_parallel_decide.cc
  std::vector<NormSum> NormsOf(const internal::NormPlan& plan) const;
  StatusOr<GradientSummary> Decide(const StepInput& input);

  // data_parallel_update.cc
  using Optimizers = std::vector<std::unique_ptr<BoundOptimizer>>;
  Status CheckWhole(const Optimizer& optimizer) const;
  StatusOr<Optimizers> Bind(const Optimizer& optimizer, SimdLevel max_simd_level) const;
  bool HasBelowFp32() const;
  StatusOr<ParameterLayout> OptimizerLayout(std::size_t group) const;
  Status SetMasters(std::span<const std::unique_ptr<BoundOptimizer>> bound);
  Status UpdateWhole();
  Status UpdateSlices();
  Status GatherParameters();
  Work GatherBucket(int b);
  Status Meet(const char* label);

  // data_parallel_units.cc
  Status MakeUnits(const MemoryHandle& memory);
  Buffer OwnParameters(int b) const;
  Status CheckUnchanged() const;
  void BumpVersions();
  void ReportUnits();
  void AddUnits(MemoryReport& report, std::int64_t& real) const;
  Status KeepMasters();

  Status Usable(const char* call) const;
  OperationOptions Labelled(std::string label) const;
  const FlatBucket& bucket(int b) const { return layout.buckets()[static_cast<std::size_t>(b)]; }
  int bucket_count() const { return static_cast<int>(layout.buckets().size()); }
  // The elements whose sums and optimizer state this rank has.
  ElementRange Owned(const FlatBucket& bucket) const {
    return is_sharded_ ? bucket.slice(shard_->rank())
                       : ElementRange{bucket.begin, bucket.begin + bucket.count};
  }

  internal::CompressionLease compression_;
  std::shared_ptr<Impl*> self_ = std::make_shared<Impl*>(this);  // null once this has gone
  std::unique_ptr<internal::ParameterStore> store_;
  std::unique_ptr<internal::GradientStore> gradients_;
  std::unique_ptr<internal::BucketReducer> reducer_;
  internal::InitialValues initial_values_;
  std::vector<DType> gradient_dtypes_;  // by group
  ParameterGroups groups_;              // of the optimizer
  std::shared_ptr<HookTarget> hook_target_;
  std::vector<std::shared_ptr<torch::autograd::Node>>
      accumulators_;  // a leaf holds its own only weakly
  Executor executor_;

  // Who shards: all ranks, or those of a host; then there are replicas.
  std::shared_ptr<Communicator> shard_;
  std::shared_ptr<Communicator> replicate_;
  bool is_sharded_ = false;    // from stage 1 on
  bool reduces_each_ = false;  // ReduceWhen::kEachMicroStep
  // By group: the flat parameter buffers of the other ranks that shard; none if out of reach.
  std::vector<std::vector<std::byte*>> peers_;
  std::vector<void*> copies_;                   // scratch of the update
  std::unique_ptr<internal::UnitStore> units_;  // null below stage 3
  bool is_reached_by_peers_ = false;            // they read the shards of units

  State state_ = State::kReady;
  std::vector<bool> fired_;       // by handle, in this last micro-step
  Status hook_error_;             // ends the engine at the next call
  Status outside_error_;          // a backward outside of a micro-step: told once
  bool in_step_ = false;          // between the first BeginMicroStep and Update or Discard
  bool backward_called_ = false;  // in this micro-step
  bool in_backward_ = false;      // Backward is on the stack
  bool reduces_ = false;          // this micro-step
  bool is_open_ = false;          // the round of this micro-step was begun
  Round round_ = Round::kNone;
  bool is_last_round_ = false;                 // of the step
  std::vector<SumOfSquares> reduced_squares_;  // by bucket, of what the reduction has seen itself
  std::vector<char> has_squares_;              // by bucket: those are all
  internal::OwnedSquares squares_;             // of the buckets that are reduced
  Time round_begin_{};
  Time round_end_{};
  Time forward_begin_{};
  Time backward_begin_{};
  Time backward_end_{};
};

}  // namespace ait::inline v0

#endif  // AIT_PARALLEL_DATA_PARALLEL_IMPL_H_

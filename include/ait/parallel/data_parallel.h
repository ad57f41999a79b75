// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_DATA_PARALLEL_H_
#define AIT_PARALLEL_DATA_PARALLEL_H_

// `DataParallel`: one model on many ranks; every rank sees other data and takes the same step. Plain
// data parallelism and the stages of ZeRO, which give the same bits.
//
// The engine moves the trainable parameters into flat buffers (ait/parallel/flat_layout.h). While
// backward runs, every bucket whose gradients have all come is summed over the ranks; the rest of
// the step is explicit:
//
//   auto engine = DataParallel::Create(world->communicator(), NamedParameters(*model)).value();
//   AIT_RETURN_IF_ERROR(engine->SetOptimizer(AdamW{{.learning_rate = 3e-4}}));
//   AIT_RETURN_IF_ERROR(engine->BeginMicroStep(MicroStep::kLast));
//   at::Tensor loss = SumOfLosses(model->forward(inputs), targets);      // a sum, not a mean
//   AIT_RETURN_IF_ERROR(engine->Backward(loss));
//   AIT_ASSIGN_OR_RETURN(GradientSummary sum, engine->FinishGradients({.count = targets.numel()}));
//   AIT_RETURN_IF_ERROR(engine->Update({.gradient_scale = 1.0 / sum.count}));
//
// Gradients are sums: over micro-steps, then over ranks in rank order. They are divided once, by
// what all ranks together have counted. So two ranks give, bit for bit, what one rank gives that
// accumulates the two batches, and the size of the buckets changes no bit.
//
// **`.grad`** of a trainable parameter is a view of a flat buffer of sums, for as long as the engine
// lives, in the dtype of `Precision::gradients`:
//
//   kNone        whole between FinishGradients and Update: the place to look at gradients, or to
//                change them, in the same way on every rank; a tensor that is put in its place counts
//                instead of it
//   kOptimizer   the elements that this rank owns are valid then; what was changed counts there
//   kGradients   with kEachMicroStep, the default, there is none: sums lie in shards. With kOnce as
//                kOptimizer
//
// With kEachMicroStep a tensor that is put in its place before FinishGradients is refused.
//
// A parameter may be used many times, not at all, or by some ranks only; it may be tied or frozen.
// What it may not: change its requires_grad, its memory or its shape afterwards. A tensor that
// replaces a parameter in its module is not seen; change values in place, under NoGradGuard.
//
// **Collective.** Create, FinishGradients, BroadcastBuffers, and the Backward of a last micro-step;
// from kOptimizer on Update, and SetOptimizer where parameters are below fp32; with kEachMicroStep
// the Backward of every micro-step, its BeginMicroStep and Discard: all ranks, in the same order.
// From the BeginMicroStep of a micro-step that reduces to FinishGradients the communicator is the
// engine's: use another one (`Communicator::Split`) for anything else.
// **Errors.** A failed collective, or an exception in backward, ends the engine: the error names
// bucket, rank and phase, the communicator is aborted so that no peer waits in vain, and every
// later call returns FailedPrecondition with the first reason.
// **Thread-safety.** One thread at a time, the same that runs backward.

#include <chrono>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/memory/resource.h"
#include "ait/optim/norm.h"
#include "ait/optim/offload.h"
#include "ait/optim/optimizer.h"
#include "ait/optim/precision.h"
#include "ait/parallel/compression_state.h"
#include "ait/parallel/flat_layout.h"
#include "ait/parallel/memory_report.h"
#include "ait/parallel/named_tensor.h"
#include "ait/parallel/parameter_unit.h"
#include "ait/parallel/step_counters.h"

namespace ait::inline v0 {

class Communicator;
class GradientCompression;
class WholeParameters;

namespace internal {
class UnitCall;
}

/// What is sharded over the ranks instead of repeated on each.
enum class ZeroStage { kNone = 0, kOptimizer = 1, kGradients = 2, kParameters = 3 };

/// What is done about the values that the ranks start with.
enum class InitialSync {
  kBroadcast,  // everybody gets the parameters and buffers of rank 0
  kVerify,     // they must be equal already, bit for bit; the error names the first that is not
};

/// Which backward follows.
enum class MicroStep {
  kAccumulate,  // more will come: gradients stay on this rank, or are reduced (kEachMicroStep)
  kLast,        // the last of the step: gradients are reduced as they come
};

/// When the gradients of several micro-steps are reduced. The order of sums differs, and so do the
/// last bits: with the same choice all stages give the same bits.
enum class ReduceWhen : std::uint8_t {
  kOnce,  // they add up on every rank, which keeps all of them; the last micro-step reduces
  kEachMicroStep,  // all are reduced and add up where they are owned: less memory, more traffic
};

/// Hybrid sharding: what a stage shards is sharded over `shard`, the ranks of a host, and repeated
/// between hosts. Gradients are reduced inside, then the slices across.
///
///   shard = all->Split(host number, rank);   replicate = all->Split(number within the host, rank);
///
/// Every host has the same number of ranks. The two are the engine's, as its communicator is.
struct HybridSharding {
  std::shared_ptr<Communicator> shard;
  std::shared_ptr<Communicator> replicate;
};

struct DataParallelOptions {
  ZeroStage zero_stage = ZeroStage::kNone;
  Precision precision;
  /// By default kOnce, and kEachMicroStep with kGradients and kParameters, of which kOnce takes the
  /// memory of kOptimizer for gradients.
  std::optional<ReduceWhen> reduce;
  /// kWholeParameters for optimizers that need them (Muon, Adafactor, LAMB) from kOptimizer on.
  SliceRule slices = SliceRule::kEqual;
  /// With kParameters: the parameters that are gathered together, see ait/parallel/unit.h. Those in
  /// none stay whole, and so do those of at most `whole_up_to` elements.
  std::vector<ParameterUnit> units;
  std::int64_t whole_up_to = 0;
  /// Units that are gathered ahead, in the order learned in the first step. 0 to 8.
  int prefetch = 1;
  /// Null members: everything is sharded over all ranks.
  HybridSharding hybrid;
  /// Optimizer states and masters in a file instead of memory (ait/optim/offload.h): one for each
  /// flat buffer and rank. Each rank may have its own directory.
  StateOffload offload;
  Bytes first_bucket = MiB(1);
  Bytes bucket_cap = MiB(25);
  InitialSync initial_sync = InitialSync::kBroadcast;
  /// Of every collective; zero takes the communicator's.
  std::chrono::milliseconds timeout{0};
  /// Where the flat buffers live; empty takes the memory that the communicator shares with its
  /// peers, where it has such, so that they are reduced in place; else a heap.
  MemoryHandle memory;
  /// Tensors that are no parameters but belong to the model: `NamedBuffers(*model)`.
  NamedTensors buffers;
  /// Any text that must be the same on all ranks, such as the configuration of the model.
  std::string must_agree;
  /// Takes the place of the exact sums of fp32 gradients: fewer bytes for slow links, see
  /// ait/parallel/compression.h. One object for each engine; null is exact.
  std::shared_ptr<GradientCompression> compression;
};

/// What a rank brings to the one small reduction of a step.
struct StepInput {
  /// Tokens or samples that the losses of this step summed over, on this rank; ≥ 0.
  std::int64_t count = 1;
  /// Sum of the losses on this rank, for the summary.
  double loss_sum = 0;
  /// What the losses were multiplied by before backward (ait/optim/loss_scaler.h); > 0, the same on
  /// all ranks. The norm of the summary is that without it.
  double loss_scale = 1;
  /// Which norm the summary has, the same on all ranks but for `not_counted`.
  NormOptions norm = {};
  /// A number that must be the same on all ranks, such as a hash of the learning rate.
  std::uint64_t must_agree = 0;
  /// Wishes of this rank, one bit each, such as "stop after this step".
  std::uint64_t requests = 0;
};

/// What all ranks know, and decide by, after it: the same bits on every rank.
struct GradientSummary {
  std::int64_t count = 0;  // over all ranks; > 0
  double loss_sum = 0;     // over all ranks, added in rank order
  double norm = 0;         // of the sum of gradients divided by `count` and the loss scale
  /// With NormScope::kEachGroup, that of each parameter group, the last of parameters in none.
  std::vector<double> group_norms = {};
  bool finite = true;          // no gradient is infinite or NaN
  std::string not_finite;      // the first parameter whose gradient is not, else empty
  int loss_not_finite = -1;    // the first rank whose loss_sum is infinite or NaN, else -1
  std::uint64_t requests = 0;  // of all ranks, or-ed: a bit that any of them has set
};

class DataParallel {
 public:
  /// **Collective. Blocks.** Checks that all ranks have the same parameters and options, and moves
  /// the parameters. The tensors stay the same objects, their values keep their strides; a
  /// parameter with gaps in memory becomes contiguous.
  /// fp32 tensors become those of `precision.parameters`.
  /// **Errors.** InvalidArgument, on every rank, names the parameter and the ranks that differ, or
  /// the options that do not go together; Unimplemented: a tensor that is not in host
  /// memory; FailedPrecondition: a parameter belongs to another engine that has not been destroyed.
  static StatusOr<std::unique_ptr<DataParallel>> Create(std::shared_ptr<Communicator> communicator,
                                                        NamedTensors parameters,
                                                        DataParallelOptions options = {});

  /// Parameters and gradients keep their memory; backward works on, on this rank alone. Parameters
  /// of units are gone (save them before, under GatherFull), and the peers, which read slices of
  /// this rank, must not use units any more: destroy the engines of all ranks after a barrier.
  ~DataParallel();
  DataParallel(const DataParallel&) = delete;
  DataParallel& operator=(const DataParallel&) = delete;

  const std::shared_ptr<Communicator>& communicator() const;
  const FlatLayout& layout() const;
  /// As given to Create.
  const DataParallelOptions& options() const;
  /// The tensors of the model as they were given: all parameters, frozen ones too, and the buffers.
  const NamedTensors& parameters() const;
  const NamedTensors& buffers() const;

  /// Binds the optimizer to the elements that this rank owns, with fresh state; masters begin with
  /// the fp32 values that the parameters had at Create, or have in the optimizer before.
  /// **Errors.** as `Optimizer::Bind`, where the call is collective on all ranks if on one;
  /// InvalidArgument that names a parameter: the algorithm needs it whole, and slices cut it;
  /// Unimplemented: one is fp64; FailedPrecondition: micro-steps are open. The optimizer before stays.
  Status SetOptimizer(const Optimizer& optimizer, SimdLevel max_simd_level = SimdLevel::kAvx512);
  /// One per flat buffer, in the order of `layout().groups()`; empty before SetOptimizer.
  std::span<const std::unique_ptr<BoundOptimizer>> optimizers() const;

  /// Opens a micro-step, before its forward. **Errors.** FailedPrecondition: a last micro-step is
  /// still open, or a parameter was frozen, unfrozen or moved since Create; it is named. Here, in
  /// Update and in Discard also, once: backward ran outside of a micro-step.
  Status BeginMicroStep(MicroStep micro_step);

  /// **Blocks.** Runs backward from a scalar. `loss.backward()` in user code does the same, but
  /// then exceptions are the user's, errors come with FinishGradients, and times are coarser.
  Status Backward(const at::Tensor& loss);

  /// **Collective. Blocks.** Ends the reduction of gradients and makes the decision of the step.
  /// **Errors.** FailedPrecondition: no last micro-step was run; InvalidArgument, on every rank: a
  /// negative count, a total of 0, or `must_agree` differs between the ranks named.
  StatusOr<GradientSummary> FinishGradients(const StepInput& input);

  /// Takes the step in one pass, and **blocks** until all parameters are new on this rank: where
  /// stages shard the update, the owner of a slice writes it to all ranks, or they gather it.
  /// Sums stay until the next step writes over them: nothing is zeroed, and `gradients_after` has no
  /// effect. **Errors.** FailedPrecondition: before FinishGradients or without an optimizer. From
  /// kOptimizer on peers wait for this rank: what else it refuses, such as a scale that is not finite
  /// or a parameter that was moved, ends the engine.
  Status Update(const StepOptions& options);

  /// Ends the step without an update: its gradients count as zero. Also throws away micro-steps
  /// accumulated so far; with kEachMicroStep on all ranks. Refused while a last micro-step is open.
  Status Discard();

  /// Ends the engine for a reason outside of it, such as an exception in the loss function: aborts
  /// its communicators, those of hybrid sharding too, so that no peer waits for this rank. Nothing if
  /// it has ended, or if `reason` is ok.
  void Abort(const Status& reason);

  /// **Collective. Blocks.** Gives all ranks the buffers of rank 0. Not while a micro-step that
  /// reduces is open.
  Status BroadcastBuffers();

  /// What the compression of this rank must remember between runs; an empty state without one.
  /// Every rank saves its own. **Errors.** FailedPrecondition: a step is not over.
  StatusOr<CompressionState> SaveCompression() const;

  /// **Collective. Blocks.** Takes up the state of an earlier run, at the same point of training:
  /// `states` holds this rank's own, or, after a change of the world size, those that
  /// ait/parallel/compression_state.h names; more do no harm. Returns what could not be kept, such
  /// as residuals that begin at zero: text for a log, empty if nothing was lost.
  /// **Errors.** InvalidArgument, on every rank: a state of another method or step; then all begin
  /// anew. FailedPrecondition: a step is not over.
  StatusOr<std::string> LoadCompression(std::span<const CompressionState> states);

  /// Runs a part of the model while the parameters of the unit `name` are whole, and returns what it
  /// returns. Include ait/parallel/unit.h, which says more. Throws, where forward may.
  template <typename Function, typename... Arguments>
  std::invoke_result_t<Function, Arguments...> Unit(std::string_view name, Function&& function,
                                                    Arguments&&... arguments);

  /// **Collective. Blocks.** All parameters are whole on this rank while what it returns lives, or
  /// until the next step ends (ait/parallel/whole_parameters.h). **Errors.** FailedPrecondition: a
  /// last micro-step is open, or its step is not over.
  StatusOr<WholeParameters> GatherFull();

  /// Bytes that the engine holds on this rank now, beside what the formulas say.
  MemoryReport Memory() const;

  /// Of the step in progress, or of the last one until the next begins.
  const StepCounters& counters() const;
  /// Ok, or why the engine has ended.
  const Status& status() const;

 private:
  friend class WholeParameters;
  friend class internal::UnitCall;
  class Impl;
  explicit DataParallel(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ait::inline v0

#endif  // AIT_PARALLEL_DATA_PARALLEL_H_

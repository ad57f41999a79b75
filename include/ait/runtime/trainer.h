// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_RUNTIME_TRAINER_H_
#define AIT_RUNTIME_TRAINER_H_

// `Trainer`: the training step as one call.
//
// It runs the forward of the program, backward, the reduction over ranks, the decision (is
// everything finite?), clipping, the schedule and the update; it keeps the progress line and
// metrics.jsonl. The loss is a sum with the number of tokens (or samples) it sums over, so that the
// mean of all ranks and micro-batches is made once, exactly.
//
//   Trainer trainer(*engine, AdamW{{.learning_rate = 3e-4}},
//                   {.clip_norm = 1.0, .total_steps = 1000, .directory = "run"});
//   while (!trainer.done()) {
//     const TokenBatch* batch = data.Next();
//     if (batch == nullptr) break;
//     auto step = trainer.Step(*batch, [&](const TokenBatch& b) {
//       const at::Tensor logits = model->forward(Inputs(b));
//       return LossSum{SumOfCrossEntropy(logits, Targets(b)), b.token_count()};
//     });
//     if (!step.ok()) return step.status();
//   }
//   AIT_RETURN_IF_ERROR(data.status());
//   return trainer.Save();
//
// A step that is not finite is skipped by all ranks: the weights stay, and so does the schedule,
// whose position is the number of updates made.
//
// **Collective.** Step, Save and Load: all ranks, in the same order; every rank takes the same
// branch. **Errors.** Those of one rank (an exception in the loss function, a failed collective)
// end the run on all: the others return an error that names it. See each call.
// **Thread-safety.** One thread at a time, but for `RequestStop`. The engine outlives the trainer,
// and may have another one after it.

#include <atomic>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "ait/base/clock.h"
#include "ait/base/log.h"
#include "ait/base/status.h"
#include "ait/observe/progress_line.h"
#include "ait/observe/step_metrics.h"
#include "ait/optim/loss_scaler.h"
#include "ait/optim/norm.h"
#include "ait/optim/optimizer.h"
#include "ait/optim/plateau.h"
#include "ait/optim/schedule.h"
#include "ait/runtime/out_of_memory.h"
#include "ait/runtime/trainer_state.h"

namespace at {
class Tensor;
}

namespace ait::inline v0 {

class DataParallel;

/// What a loss function returns: the sum of the losses of a micro-batch, a scalar with a graph, and
/// how many tokens or samples it sums over.
template <typename Tensor>
struct BasicLossSum {
  Tensor sum;
  std::int64_t count = 0;  // ≥ 0; not 0 on all ranks
};
using LossSum = BasicLossSum<at::Tensor>;

struct TrainerOptions {
  /// Largest norm of the mean gradient; a larger gradient is scaled down to it. > 0.
  double clip_norm = std::numeric_limits<double>::infinity();
  /// Which norm that is. With NormScope::kEachGroup the gradient of each parameter group is scaled
  /// down by its own norm.
  NormOptions norm = {};
  /// Clipping by value: the mean gradient, after clip_norm, is cut to ± this. > 0.
  double clip_value = std::numeric_limits<double>::infinity();
  /// The loss function runs in an `Autocast` scope of this dtype: kBFloat16 or kFloat16.
  std::optional<DType> autocast = {};
  /// Scales losses, for fp16 parameters or autocast, which are refused without; bf16 and fp32 need
  /// none, and are refused with one.
  std::optional<LossScalerOptions> loss_scaler = {};
  /// Micro-batches, hence calls of `Step`, that make one step. ≥ 1.
  int accumulate = 1;
  /// Factor of the learning rate after 0, 1, … updates.
  Schedule schedule;
  /// Lowers the rate further when a metric no longer gets better: see `Observe`.
  std::optional<PlateauOptions> plateau = {};
  /// The trainer is done after so many steps, skipped ones included. ≥ 1.
  std::optional<std::int64_t> total_steps;
  /// Steps with a loss or gradient that is not finite are skipped: the weights stay. So many of
  /// them in a row are borne, the next is an error. ≥ 0. With a loss scaler, gradients that are not
  /// finite although the loss is have its limit instead.
  int nonfinite_limit = 10;
  /// Where rank 0 puts metrics.jsonl and weights.safetensors; made if it is missing. Empty: no
  /// metrics, and `Save` needs a path.
  std::string directory;
  /// The progress line of rank 0: `ProgressTo(STDERR_FILENO)`. The default shows nothing.
  ProgressOptions progress;
  /// For the epoch of the report: steps that go once through the data.
  std::optional<double> steps_per_epoch;
  /// For the time left of the report, where `total_steps` does not say: the part of the run that is
  /// done, 0 to 1, asked after each step. Ranks may answer differently.
  std::function<double()> progress_fraction;
  /// For the report: how long the program waited for data since this was last asked, such as
  /// `[&] { return loader.TakeWait().wait; }`. Asked once a step, of the rank itself.
  std::function<Duration()> data_wait;
  /// How long ranks wait for rank 0 to save.
  std::chrono::milliseconds save_timeout = std::chrono::minutes(30);
  /// Memory by phase, its limits, and what an error about it says (ait/runtime/out_of_memory.h).
  MemoryWatchOptions memory = {};
  /// Rank 0 tells of skipped steps and of metrics that cannot be written, every rank of its memory.
  LogSink* log = nullptr;
  Clock* clock = &SystemClock();
};

enum class StepOutcome {
  kAccumulated,  // a micro-batch was added; the step goes on with the next call
  kUpdated,      // the step is over and the weights have moved
  kSkipped,      // the step is over; the loss or the gradient was not finite, the weights stay
};

struct StepResult {
  StepOutcome outcome = StepOutcome::kAccumulated;
  /// The report of the step; of an accumulated micro-batch only `step` is known. The same on all
  /// ranks but for times, memory and counters.
  StepMetrics metrics;
};

class Trainer {
 public:
  /// Gives the optimizer to the engine. What is wrong with the options, the optimizer (a parameter
  /// group that selects nothing, too) or the directory is told by `status` and by the first `Step`,
  /// on all ranks.
  Trainer(DataParallel& engine, const Optimizer& optimizer, TrainerOptions options = {});
  /// Ends the progress line. Micro-batches of a step that is not over are thrown away.
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  /// **Collective. Blocks.** Runs one micro-batch: `loss(batch)` returns a LossSum, or a
  /// StatusOr<LossSum>. Every `accumulate`-th call ends a step.
  /// **Errors.** What `loss` throws or returns, with rank and step; InvalidArgument: the loss is
  /// not one number, or the options or the optimizer differ between ranks; FailedPrecondition: the
  /// trainer is done;
  /// OutOfRange: too many steps in a row were not finite, with rank or parameter; those of
  /// `DataParallel`. After an error every call returns it again.
  template <typename Batch, typename LossFunction>
  StatusOr<StepResult> Step(const Batch& batch, LossFunction&& loss);

  /// True after the last step: `total_steps` have been made, or the ranks have agreed to stop.
  bool done() const;
  /// Steps made so far, skipped ones included; and those of them that moved the weights.
  std::int64_t step() const;
  std::int64_t updates() const;
  /// Ok, or the error that ended the run.
  const Status& status() const;
  /// Ok, or why the newest line of metrics.jsonl could not be written. Training goes on, and every
  /// step tries again.
  const Status& metrics_status() const;

  /// What the last whole step took, by phase; null before the first has ended.
  const StepMemory* memory() const;
  /// The report of the last error about memory on this rank; null if there was none.
  const OutOfMemoryReport* out_of_memory() const;
  /// An error of the program's own, such as the data set's, with a report before it if it is about
  /// memory, as those of `Step` have; else the error as it is.
  Status ExplainOutOfMemory(const Status& error);

  /// Asks for a stop: at the end of the current step all ranks are told, and then `done` is true on
  /// all of them at the same step. **Thread-safety.** From any thread, and from a signal handler of
  /// the program.
  void RequestStop() noexcept { stop_requested_.store(true, std::memory_order_relaxed); }

  /// Tells the next value of the metric that the plateau schedule follows, such as the loss of a
  /// validation: the same number on all ranks, or the next step fails and says so.
  /// **Errors.** FailedPrecondition: the options have no `plateau`.
  Status Observe(double metric);

  /// What to save beside weights and optimizer state, and to continue from, between steps: the same
  /// on all ranks.
  /// **Errors.** FailedPrecondition: micro-batches of a step are open, or the state has a loss
  /// scaler or plateau that the options have not; InvalidArgument: a number makes no sense.
  TrainerState state() const;
  Status set_state(const TrainerState& state);

  /// **Collective. Blocks.** Rank 0 writes parameters and buffers as safetensors, durably (see
  /// ait/checkpoint/weights.h), to `path` or to weights.safetensors in the directory. Before that
  /// all ranks get the buffers of rank 0: every rank updates buffers, such as the statistics of a
  /// BatchNorm, from its own data, and those of rank 0 are the ones kept. Parameters below fp32 are
  /// written as they are, rounded; their masters are in the optimizer state.
  /// **Errors.** On all ranks the one of rank 0; the old file is as it was then.
  Status Save(const std::string& path = "");

  /// **Collective. Blocks.** Every rank reads parameters and buffers from the file, which it must
  /// be able to see. **Errors.** As `LoadWeights`; on all ranks the first error of any, with its
  /// rank. If the file is missing or does not fit on one rank, nothing is changed on any, and the
  /// trainer goes on; an error while values are read ends the run. Masters of parameters below fp32
  /// become what was read.
  Status Load(const std::string& path);

 private:
  class Impl;
  /// Runs forward: sets the loss, returns the count.
  using Forward = std::function<StatusOr<std::int64_t>(at::Tensor& sum)>;
  StatusOr<StepResult> RunStep(const Forward& forward);

  std::atomic<bool> stop_requested_ = false;
  std::unique_ptr<Impl> impl_;
};

static_assert(std::atomic<bool>::is_always_lock_free, "RequestStop is for signal handlers");

template <typename Batch, typename LossFunction>
StatusOr<StepResult> Trainer::Step(const Batch& batch, LossFunction&& loss) {
  return RunStep([&](at::Tensor& sum) -> StatusOr<std::int64_t> {
    auto result = loss(batch);
    if constexpr (requires { result.status(); }) {
      if (!result.ok()) return result.status();
      sum = std::move(result->sum);
      return result->count;
    } else {
      sum = std::move(result.sum);
      return result.count;
    }
  });
}

}  // namespace ait::inline v0

#endif  // AIT_RUNTIME_TRAINER_H_

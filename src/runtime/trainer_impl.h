// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_RUNTIME_TRAINER_IMPL_H_
#define AIT_RUNTIME_TRAINER_IMPL_H_

// The trainer behind the door. Its start and end are in trainer.cc, the step is in trainer_step.cc,
// its report in trainer_report.cc.

#include <atomic>
#include <functional>
#include <optional>
#include <string>

#include "ait/comm/communicator.h"
#include "ait/observe/metrics_log.h"
#include "ait/parallel/data_parallel.h"
#include "ait/runtime/trainer.h"
#include "runtime/memory_watch_internal.h"

namespace ait::inline v0 {

class Trainer::Impl {
 public:
  Impl(DataParallel& engine, const Optimizer& optimizer, TrainerOptions options);
  ~Impl();

  StatusOr<StepResult> RunStep(const Forward& forward, const std::atomic<bool>& stop_requested);

  /// Ends the run with an error that all ranks have.
  Status End(Status reason);
  /// Ends the run with an error of this rank, and tells the others, so that none waits in vain. An
  /// engine that has ended has told them itself, and says where.
  Status Fail(const Status& reason);

  bool done() const {
    return stopped_ || (options.total_steps.has_value() && step >= *options.total_steps);
  }
  /// True on rank 0, which writes files and the progress line.
  bool is_first() const { return engine.communicator()->rank() == Rank(0); }

  Status Observe(double metric);
  TrainerState state() const;
  Status set_state(const TrainerState& state);

  Status Save(const std::string& path);
  Status Load(const std::string& path);
  /// Runs `body` as the phase of saving and loading; errors about memory are explained.
  Status InCheckpoint(const std::function<Status()>& body);

  NamedTensors Weights() const;
  Status Agree(const Status& status, const char* what);
  /// Tells the peers, which may miss this rank, and the watch on memory what comes now.
  /// **Errors.** Those of the watch.
  Status Enter(MemoryPhase phase);
  internal::StepPlace place() const { return {.step = step + 1, .micro_step = micro_step_ + 1}; }

  DataParallel& engine;
  const TrainerOptions options;
  internal::MemoryWatch watch;
  Status status;
  Status metrics_status;
  std::int64_t step = 0;
  std::int64_t updates = 0;

 private:
  /// The rate of the step in progress: the optimizer's, times the schedule's and plateau's factor.
  struct Rate {
    double factor = 1;
    double learning_rate = 0;
  };

  Status Prepare(const Optimizer& optimizer);
  /// The next trainer of this engine begins with clean gradients.
  void DiscardOpenStep();
  Status AtStep(const Status& reason) const;

  Status RunMicroStep(const Forward& forward, bool is_last);
  /// Forward of the program, in the scope that the options ask for.
  StatusOr<std::int64_t> RunForward(const Forward& forward, at::Tensor& sum);
  /// fp16 has a loss scaler, and nothing else has one.
  Status CheckScaling(bool autocast_is_fp16);
  StatusOr<Rate> RateOfStep() const;
  std::uint64_t MustAgree(double learning_rate) const;
  StepOptions UpdateOptions(const GradientSummary& summary, double factor) const;
  StatusOr<GradientSummary> FinishGradients(const StepInput& input);
  StatusOr<StepResult> FinishStep(const GradientSummary& summary, const Rate& rate);
  /// What the loss scaler makes of a step: its limit of skips is an error.
  Status MoveScale(const GradientSummary& summary);
  /// Tells of a skipped step; an error if there were too many in a row.
  Status AfterSkip(const GradientSummary& summary, const Status& scaled);

  StepMetrics Measure(const GradientSummary& summary, double learning_rate, double loss_scale);
  void Report(const StepMetrics& metrics);

  double loss_scale() const { return scaler_ ? scaler_->scale() : 1; }

  const double learning_rate_;  // of the optimizer, before the schedule
  const std::uint64_t fingerprint_;
  ProgressLine progress_;
  std::optional<MetricsLog> metrics_;
  std::optional<LossScaler> scaler_;
  std::optional<Plateau> plateau_;
  bool parameters_are_fp16_ = false;

  // The step in progress.
  bool step_is_open_ = false;
  int micro_step_ = 0;  // done
  std::int64_t count_ = 0;
  double loss_sum_ = 0;
  Time step_begin_{};

  std::optional<Time> begin_;    // of the first step
  std::int64_t first_step_ = 0;  // of this run: the one before it
  std::int64_t skipped_ = 0;
  std::int64_t skipped_in_a_row_ = 0;
  bool stopped_ = false;
};

}  // namespace ait::inline v0

#endif  // AIT_RUNTIME_TRAINER_IMPL_H_

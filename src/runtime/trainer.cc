// SPDX-License-Identifier: Apache-2.0
#include "ait/runtime/trainer.h"

// Keep the order.
#include "tensor/torch_internal.h"
// clang-format off
#include <ATen/ops/item.h>
// clang-format on

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

#include "ait/base/durable_file.h"
#include "ait/checkpoint/weights.h"
#include "ait/comm/communicator.h"
#include "ait/observe/metrics_log.h"
#include "ait/observe/process_memory.h"
#include "ait/optim/norm.h"
#include "ait/optim/parameter_groups.h"
#include "ait/parallel/data_parallel.h"
#include "ait/parallel/whole_parameters.h"
#include "parallel/hash_internal.h"
#include "runtime/agree_internal.h"
#include "tensor/catch.h"

namespace ait::inline v0 {
namespace {

Status CheckOptions(const TrainerOptions& options) {
  if (!(options.clip_norm > 0))
    return InvalidArgumentError("clip_norm is ", options.clip_norm, ", it must be positive");
  if (options.accumulate < 1)
    return InvalidArgumentError("accumulate is ", options.accumulate, ", it must be at least 1");
  if (options.total_steps.value_or(1) < 1)
    return InvalidArgumentError("total_steps is ", *options.total_steps, ", it must be at least 1");
  if (options.nonfinite_limit < 0) {
    return InvalidArgumentError("nonfinite_limit is ", options.nonfinite_limit,
                                ", it must not be negative");
  }
  if (options.steps_per_epoch && !(*options.steps_per_epoch > 0)) {
    return InvalidArgumentError("steps_per_epoch is ", *options.steps_per_epoch,
                                ", it must be positive");
  }
  return Annotate(options.schedule.Validate(), "schedule");
}

/// One number for all that must be the same on every rank from the first step to the last.
std::uint64_t Fingerprint(const TrainerOptions& options, const Optimizer& optimizer) {
  return internal::Hash64()
      .Add(std::string_view(optimizer.Describe()))
      .Add(std::bit_cast<std::uint64_t>(options.clip_norm))
      .Add(static_cast<std::uint64_t>(options.accumulate))
      .Add(static_cast<std::uint64_t>(options.total_steps.value_or(-1)))
      .Add(static_cast<std::uint64_t>(options.nonfinite_limit))
      .value();
}

std::vector<ParameterSegment> SegmentsOf(const FlatLayout& layout) {
  std::vector<ParameterSegment> segments;
  for (const ParameterInfo& info : layout.parameters())
    segments.push_back({.name = info.name, .shape = info.sizes});
  return segments;
}

/// Time left of a run that has taken `elapsed` for the part `done` of it.
std::optional<Duration> Remaining(Duration elapsed, double done) {
  constexpr double kLongest = 1e9;  // seconds; a guess of more, 30 years, is none
  const double left = Seconds(elapsed) * (1 - std::min(done, 1.0)) / done;
  if (!(done > 0) || !(left <= kLongest)) return std::nullopt;
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(left));
}

Status CheckLoss(const at::Tensor& sum, std::int64_t count) {
  if (count < 0) return InvalidArgumentError("the count of the loss is ", count);
  if (!sum.defined()) return InvalidArgumentError("the loss is an undefined tensor");
  if (sum.numel() != 1) {
    return InvalidArgumentError("the loss has ", sum.numel(),
                                " elements, it must be one number: sum it");
  }
  if (!sum.requires_grad()) {
    return InvalidArgumentError(
        "the loss does not depend on a parameter that is trained, or was made under a NoGradGuard");
  }
  return OkStatus();
}

}  // namespace

class Trainer::Impl {
 public:
  Impl(DataParallel& engine, const Optimizer& optimizer, TrainerOptions options)
      : engine(engine),
        options(std::move(options)),
        learning_rate_(optimizer.learning_rate()),
        fingerprint_(Fingerprint(this->options, optimizer)),
        progress_(is_first() ? this->options.progress : ProgressOptions{}) {
    const Status ready = internal::CatchAsStatus([&] { return Prepare(optimizer); });
    if (!ready.ok()) Fail(Annotate(ready, "the trainer cannot start")).IgnoreError();
  }

  ~Impl() {
    internal::CatchAsStatus([&] { progress_.Finish(); }).IgnoreError();
    DiscardOpenStep();
  }

  StatusOr<StepResult> RunStep(const Forward& forward, const std::atomic<bool>& stop_requested) {
    const Time now = options.clock->now();
    if (!begin_) begin_ = step_begin_ = now;
    const bool is_last = micro_step_ + 1 == options.accumulate;
    AIT_RETURN_IF_ERROR(RunMicroStep(forward, is_last));
    ++micro_step_;
    if (!is_last) Note("data");
    if (!is_last)
      return StepResult{.outcome = StepOutcome::kAccumulated, .metrics = {.step = step}};

    const auto factor = internal::CatchAsStatus([&] { return options.schedule.FactorAt(step); });
    if (!factor.ok()) return Annotate(factor.status(), "the schedule failed");
    const double learning_rate = learning_rate_ * *factor;
    const std::uint64_t request = stop_requested.load(std::memory_order_relaxed) ? 1 : 0;
    Note("reduce");
    const auto summary = engine.FinishGradients({.count = count_,
                                                 .loss_sum = loss_sum_,
                                                 .must_agree = MustAgree(learning_rate),
                                                 .requests = request});
    if (!summary.ok())
      return engine.status().ok() ? End(AtStep(summary.status())) : summary.status();
    Note("update");
    auto result = FinishStep(*summary, *factor, learning_rate);
    Note("data");  // of the next step: what the program does until it calls again
    return result;
  }

  /// Ends the run with an error that all ranks have.
  Status End(Status reason) {
    status = std::move(reason);
    progress_.Finish();
    DiscardOpenStep();
    return status;
  }

  /// Ends the run with an error of this rank, and tells the others, so that none waits in vain. An
  /// engine that has ended has told them itself, and says where.
  Status Fail(const Status& reason) {
    if (!engine.status().ok()) return End(reason);
    const Status located = Annotate(AtStep(reason), StrCat("rank ", engine.communicator()->rank()));
    engine.communicator()->Abort(located);
    return End(located);
  }

  bool done() const {
    return stopped_ || (options.total_steps.has_value() && step >= *options.total_steps);
  }

  /// True on rank 0, which writes files and the progress line.
  bool is_first() const { return engine.communicator()->rank() == Rank(0); }

  NamedTensors Weights() const {
    NamedTensors weights = engine.parameters();
    const NamedTensors& buffers = engine.buffers();
    for (std::size_t i = 0; i < buffers.size(); ++i)
      weights.Add(buffers.name(i), buffers.tensor(i));
    return weights;
  }

  Status Agree(const Status& status, const char* what) {
    return internal::AgreeOnStatus(*engine.communicator(), status,
                                   {.timeout = options.save_timeout, .label = what});
  }

  /// Says to the peers, which may miss this rank, what it does.
  void Note(const char* phase) { engine.communicator()->Note(step + 1, phase); }

  DataParallel& engine;
  const TrainerOptions options;
  Status status;
  Status metrics_status;
  std::int64_t step = 0;

 private:
  /// The next trainer of this engine begins with clean gradients.
  void DiscardOpenStep() {
    if (step_is_open_ && engine.status().ok()) engine.Discard().IgnoreError();
    step_is_open_ = false;
  }

  std::uint64_t MustAgree(double learning_rate) const {
    return internal::Hash64()
        .Add(fingerprint_)
        .Add(static_cast<std::uint64_t>(step))
        .Add(std::bit_cast<std::uint64_t>(learning_rate))
        .value();
  }

  Status AtStep(const Status& reason) const { return Annotate(reason, StrCat("step ", step + 1)); }

  Status Prepare(const Optimizer& optimizer) {
    AIT_RETURN_IF_ERROR(CheckOptions(options));
    AIT_RETURN_IF_ERROR(CheckSelection(optimizer.groups(), SegmentsOf(engine.layout())));
    AIT_RETURN_IF_ERROR(engine.SetOptimizer(optimizer));
    if (options.directory.empty() || !is_first()) return OkStatus();
    AIT_RETURN_IF_ERROR(
        Annotate(MakeDirectoryDurably(options.directory), "cannot make the run's directory"));
    AIT_ASSIGN_OR_RETURN(metrics_, MetricsLog::Open(options.directory + "/metrics.jsonl"));
    return OkStatus();
  }

  Status RunMicroStep(const Forward& forward, bool is_last) {
    step_is_open_ = true;
    AIT_RETURN_IF_ERROR(engine.BeginMicroStep(is_last ? MicroStep::kLast : MicroStep::kAccumulate));
    at::Tensor sum;
    Note("forward");
    const auto count = internal::CatchAsStatus([&] { return forward(sum); });
    if (!count.ok()) return Annotate(count.status(), "the loss function failed");
    AIT_RETURN_IF_ERROR(CheckLoss(sum, *count));
    const auto value = internal::CatchAsStatus([&] { return sum.item<double>(); });
    AIT_RETURN_IF_ERROR(value.status());
    count_ += *count;
    loss_sum_ += *value;
    Note("backward");
    return engine.Backward(sum);
  }

  StatusOr<StepResult> FinishStep(const GradientSummary& summary, double factor,
                                  double learning_rate) {
    const bool finite = summary.finite && summary.loss_not_finite < 0;
    const auto count = static_cast<double>(summary.count);
    if (finite) {
      const double scale = ClipFactor(summary.norm, options.clip_norm) / count;
      AIT_RETURN_IF_ERROR(engine.Update({.learning_rate_factor = factor, .gradient_scale = scale}));
    } else {
      AIT_RETURN_IF_ERROR(engine.Discard());
    }
    step_is_open_ = false;
    count_ = micro_step_ = 0;
    loss_sum_ = 0;
    ++step;
    stopped_ = summary.requests != 0;
    if (!finite) ++skipped_;
    skipped_in_a_row_ = finite ? 0 : skipped_in_a_row_ + 1;

    StepResult result{.outcome = finite ? StepOutcome::kUpdated : StepOutcome::kSkipped,
                      .metrics = Measure(summary, learning_rate)};
    if (is_first()) Report(result.metrics);
    if (!finite) AIT_RETURN_IF_ERROR(AfterSkip(summary));
    if (done()) progress_.Finish();
    return result;
  }

  StepMetrics Measure(const GradientSummary& summary, double learning_rate) {
    const Time now = options.clock->now();
    const Duration step_time = now - std::exchange(step_begin_, now);
    const StepCounters& counters = engine.counters();
    StepMetrics metrics{.step = step,
                        .total_steps = options.total_steps,
                        .loss = summary.loss_sum / static_cast<double>(summary.count),
                        .learning_rate = learning_rate,
                        .gradient_norm = summary.norm,
                        .step_time = step_time,
                        .host_memory = HostMemory(now),
                        .elapsed = now - *begin_,
                        .skipped_steps = skipped_,
                        .counters = {{"tokens", summary.count},
                                     {"micro_steps", counters.micro_steps},
                                     {"collectives", counters.collectives},
                                     {"communicated_bytes", counters.communicated_bytes},
                                     {"unreduced_buckets", counters.unreduced_buckets},
                                     {"unused_parameters", counters.unused_parameters}}};
    if (const CompressionCounters& compression = counters.compression; compression.sent_bytes > 0) {
      metrics.counters.emplace_back("compression_sent_bytes", compression.sent_bytes);
      metrics.counters.emplace_back("compression_exact_bytes", compression.exact_sent_bytes);
      if (const double error = compression.relative_error(); std::isfinite(error)) {
        metrics.counters.emplace_back("compression_error_ppm", std::llround(error * 1e6));
      }
    }
    if (options.steps_per_epoch)
      metrics.epoch = static_cast<double>(step) / *options.steps_per_epoch;
    if (step_time > Duration::zero()) {
      metrics.tokens_per_second = static_cast<double>(summary.count) / Seconds(step_time);
      metrics.exposed_communication = Seconds(counters.exposed) / Seconds(step_time);
    }
    if (options.total_steps) {
      metrics.remaining = (now - *begin_) / step * (*options.total_steps - step);
    } else if (options.progress_fraction) {
      metrics.remaining = Remaining(now - *begin_, options.progress_fraction());
    }
    return metrics;
  }

  /// Resident memory, read at most four times a second.
  std::optional<Bytes> HostMemory(Time now) {
    if (now >= next_memory_) {
      memory_ = ReadProcessMemory().resident;
      next_memory_ = now + std::chrono::milliseconds(250);
    }
    return memory_;
  }

  void Report(const StepMetrics& metrics) {
    if (metrics_) {
      const bool was_ok = metrics_status.ok();
      metrics_status = metrics_->Append(metrics);
      if (was_ok && !metrics_status.ok())
        Log(options.log, Severity::kWarning, "runtime", Message(metrics_status));
    }
    progress_.Update(metrics);
  }

  /// Tells of a skipped step; an error if there were too many in a row.
  Status AfterSkip(const GradientSummary& summary) {
    std::string what =
        summary.loss_not_finite >= 0
            ? StrCat("the loss of rank ", summary.loss_not_finite,
                     " is not finite (the sum over all is ", summary.loss_sum, ")")
            : StrCat("the gradient of parameter ", summary.not_finite, " is not finite");
    what = StrCat("step ", step, " was skipped: ", what);
    if (skipped_in_a_row_ <= options.nonfinite_limit) {
      if (is_first()) Log(options.log, Severity::kWarning, "runtime", what);
      return OkStatus();
    }
    return End(OutOfRangeError(what, "; it is number ", skipped_in_a_row_,
                               " in a row, allowed are ", options.nonfinite_limit,
                               "; lower the learning rate, set clip_norm, or look at the data"));
  }

  const double learning_rate_;  // of the optimizer, before the schedule
  const std::uint64_t fingerprint_;
  ProgressLine progress_;
  std::optional<MetricsLog> metrics_;

  // The step in progress.
  bool step_is_open_ = false;
  int micro_step_ = 0;  // done
  std::int64_t count_ = 0;
  double loss_sum_ = 0;
  Time step_begin_{};

  std::optional<Time> begin_;  // of the first step
  Time next_memory_{};
  std::optional<Bytes> memory_;
  std::int64_t skipped_ = 0;
  int skipped_in_a_row_ = 0;
  bool stopped_ = false;
};

Trainer::Trainer(DataParallel& engine, const Optimizer& optimizer, TrainerOptions options)
    : impl_(std::make_unique<Impl>(engine, optimizer, std::move(options))) {}
Trainer::~Trainer() = default;

bool Trainer::done() const { return impl_->done(); }
std::int64_t Trainer::step() const { return impl_->step; }
const Status& Trainer::status() const { return impl_->status; }
const Status& Trainer::metrics_status() const { return impl_->metrics_status; }

StatusOr<StepResult> Trainer::RunStep(const Forward& forward) {
  AIT_RETURN_IF_ERROR(impl_->status);
  if (done()) {
    return FailedPreconditionError("the trainer is done after step ", step(),
                                   "; loop while (!trainer.done())");
  }
  auto result = internal::CatchAsStatus([&] { return impl_->RunStep(forward, stop_requested_); });
  if (!result.ok() && impl_->status.ok()) return impl_->Fail(result.status());
  return result;
}

Status Trainer::Save(const std::string& path) {
  impl_->Note("checkpoint");
  if (!impl_->engine.buffers().empty() && impl_->engine.communicator()->size().value() > 1)
    AIT_RETURN_IF_ERROR(impl_->engine.BroadcastBuffers());
  AIT_ASSIGN_OR_RETURN(const WholeParameters whole, impl_->engine.GatherFull());
  Status saved;
  if (impl_->is_first()) {
    const std::string& directory = impl_->options.directory;
    if (path.empty() && directory.empty()) {
      saved = InvalidArgumentError("Save has no path, and the trainer no directory");
    } else {
      saved =
          SaveWeights(path.empty() ? directory + "/weights.safetensors" : path, impl_->Weights());
    }
  }
  saved = impl_->Agree(saved, "weights saved");
  impl_->Note("data");
  return saved;
}

Status Trainer::Load(const std::string& path) {
  AIT_RETURN_IF_ERROR(impl_->status);
  const NamedTensors weights = impl_->Weights();
  AIT_ASSIGN_OR_RETURN(WholeParameters whole, impl_->engine.GatherFull());
  AIT_RETURN_IF_ERROR(impl_->Agree(CheckWeights(path, weights), "weights fit"));
  const Status loaded = impl_->Agree(LoadWeights(path, weights).status(), "weights loaded");
  // Some ranks may have other weights now than the rest.
  if (!loaded.ok())
    return impl_->End(Annotate(loaded, "the run has ended while weights were read"));
  return whole.Keep();
}

}  // namespace ait::inline v0

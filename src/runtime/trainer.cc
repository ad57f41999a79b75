// SPDX-License-Identifier: Apache-2.0
#include "ait/runtime/trainer.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "ait/base/durable_file.h"
#include "ait/checkpoint/weights.h"
#include "ait/optim/parameter_groups.h"
#include "ait/parallel/whole_parameters.h"
#include "base/memory_refusal.h"
#include "parallel/hash_internal.h"
#include "runtime/agree_internal.h"
#include "runtime/trainer_impl.h"
#include "tensor/catch.h"

namespace ait::inline v0 {
namespace {

Status CheckOptions(const TrainerOptions& options) {
  if (!(options.clip_norm > 0))
    return InvalidArgumentError("clip_norm is ", options.clip_norm, ", it must be positive");
  if (!(options.clip_value > 0))
    return InvalidArgumentError("clip_value is ", options.clip_value, ", it must be positive");
  AIT_RETURN_IF_ERROR(options.norm.Validate());
  if (options.autocast.value_or(DType::kBFloat16) != DType::kBFloat16 &&
      options.autocast != DType::kFloat16) {
    return InvalidArgumentError("autocast is ", Name(*options.autocast),
                                ", it must be bfloat16 or float16");
  }
  if (options.loss_scaler) AIT_RETURN_IF_ERROR(options.loss_scaler->Validate());
  if (options.plateau) AIT_RETURN_IF_ERROR(options.plateau->Validate());
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
  const auto bits = [](double value) { return std::bit_cast<std::uint64_t>(value); };
  return internal::Hash64()
      .Add(std::string_view(optimizer.Describe()))
      .Add(bits(options.clip_norm))
      .Add(bits(options.clip_value))
      .Add(bits(options.norm.p))
      .Add(static_cast<std::uint64_t>(options.norm.scope))
      .Add(static_cast<std::uint64_t>(options.autocast.value_or(DType::kFloat32)))
      .Add(std::string_view(options.loss_scaler ? options.loss_scaler->Describe() : ""))
      .Add(static_cast<std::uint64_t>(options.accumulate))
      .Add(static_cast<std::uint64_t>(options.total_steps.value_or(-1)))
      .Add(static_cast<std::uint64_t>(options.nonfinite_limit))
      .value();
}

/// What peers that miss this rank are told.
const char* NoteOf(MemoryPhase phase) {
  switch (phase) {
    case MemoryPhase::kLoad:
      return "data";
    case MemoryPhase::kForward:
      return "forward";
    case MemoryPhase::kBackward:
      return "backward";
    case MemoryPhase::kCommunication:
      return "reduce";
    case MemoryPhase::kOptimizer:
      return "update";
    case MemoryPhase::kCheckpoint:
      return "checkpoint";
  }
  return "";
}

std::vector<ParameterSegment> SegmentsOf(const FlatLayout& layout) {
  std::vector<ParameterSegment> segments;
  for (const ParameterInfo& info : layout.parameters())
    segments.push_back({.name = info.name, .shape = info.sizes});
  return segments;
}

}  // namespace

Trainer::Impl::Impl(DataParallel& given_engine, const Optimizer& optimizer,
                    TrainerOptions given_options)
    : engine(given_engine),
      options(std::move(given_options)),
      watch(engine, {.options = &options.memory,
                     .log = options.log,
                     .clock = options.clock,
                     .optimizer = internal::KindOf(optimizer),
                     .state = internal::StateFormatOf(optimizer),
                     .micro_steps = std::max(options.accumulate, 1)}),
      learning_rate_(optimizer.learning_rate()),
      fingerprint_(Fingerprint(options, optimizer)),
      progress_(is_first() ? options.progress : ProgressOptions{}) {
  const Status ready = internal::CatchAsStatus([&] { return Prepare(optimizer); });
  if (!ready.ok()) Fail(Annotate(ready, "the trainer cannot start")).IgnoreError();
}

Trainer::Impl::~Impl() {
  internal::CatchAsStatus([&] { progress_.Finish(); }).IgnoreError();
  DiscardOpenStep();
}

Status Trainer::Impl::Prepare(const Optimizer& optimizer) {
  AIT_RETURN_IF_ERROR(CheckOptions(options));
  for (const ParameterInfo& info : engine.layout().parameters()) {
    if (info.dtype == DType::kFloat16 && info.role == ParameterInfo::Role::kTrainable)
      parameters_are_fp16_ = true;
  }
  if (options.loss_scaler) scaler_.emplace(*options.loss_scaler);
  if (options.plateau) plateau_.emplace(*options.plateau);
  if (parameters_are_fp16_ || options.autocast == DType::kFloat16)  // the rest is seen in forward
    AIT_RETURN_IF_ERROR(CheckScaling(options.autocast == DType::kFloat16));
  AIT_RETURN_IF_ERROR(CheckSelection(optimizer.groups(), SegmentsOf(engine.layout())));
  {
    const MemoryLabel label("optimizer");
    watch.Begin(MemoryPhase::kOptimizer, place()).IgnoreError();
    AIT_RETURN_IF_ERROR(engine.SetOptimizer(optimizer));
    watch.Begin(MemoryPhase::kLoad, place()).IgnoreError();
  }
  if (options.directory.empty() || !is_first()) return OkStatus();
  AIT_RETURN_IF_ERROR(
      Annotate(MakeDirectoryDurably(options.directory), "cannot make the run's directory"));
  AIT_ASSIGN_OR_RETURN(metrics_, MetricsLog::Open(options.directory + "/metrics.jsonl"));
  return OkStatus();
}

Status Trainer::Impl::End(Status reason) {
  status = std::move(reason);
  progress_.Finish();
  DiscardOpenStep();
  return status;
}

Status Trainer::Impl::Enter(MemoryPhase phase) {
  engine.communicator()->Note(step + 1, NoteOf(phase));
  return watch.Begin(phase, place());
}

Status Trainer::Impl::Fail(const Status& reason) {
  const Status explained = watch.Explain(reason, place());
  if (!engine.status().ok()) return End(watch.WithReport(explained));
  const Status located =
      Annotate(AtStep(explained), StrCat("rank ", engine.communicator()->rank()));
  // The engine knows all groups that peers may wait in. A lone rank may try again.
  if (engine.communicator()->size().value() > 1) engine.Abort(located);
  return End(watch.WithReport(located));
}

void Trainer::Impl::DiscardOpenStep() {
  if (step_is_open_ && engine.status().ok()) engine.Discard().IgnoreError();
  step_is_open_ = false;
}

NamedTensors Trainer::Impl::Weights() const {
  NamedTensors weights = engine.parameters();
  const NamedTensors& buffers = engine.buffers();
  for (std::size_t i = 0; i < buffers.size(); ++i) weights.Add(buffers.name(i), buffers.tensor(i));
  return weights;
}

Status Trainer::Impl::Agree(const Status& local, const char* what) {
  const Status explained = watch.Explain(local, place());
  const Status agreed = internal::AgreeOnStatus(*engine.communicator(), explained,
                                                {.timeout = options.save_timeout, .label = what});
  const auto refusal = internal::RefusalOf(explained);
  return refusal ? watch.WithReport(internal::WithRefusal(agreed, *refusal)) : agreed;
}

Status Trainer::Impl::Observe(double metric) {
  if (!plateau_) {
    return FailedPreconditionError(
        "Observe: no schedule follows a metric; set TrainerOptions::plateau");
  }
  plateau_->Observe(metric);
  return OkStatus();
}

TrainerState Trainer::Impl::state() const {
  TrainerState state{.step = step, .updates = updates, .skipped_in_a_row = skipped_in_a_row_};
  if (scaler_) state.loss_scaler = scaler_->state();
  if (plateau_) state.plateau = plateau_->state();
  return state;
}

Status Trainer::Impl::set_state(const TrainerState& state) {
  if (micro_step_ != 0) {
    return FailedPreconditionError("set_state: ", micro_step_, " of ", options.accumulate,
                                   " micro-batches of a step are open; call it between steps");
  }
  if (state.step < 0 || state.updates < 0 || state.updates > state.step ||
      state.skipped_in_a_row < 0) {
    return InvalidArgumentError("set_state: step is ", state.step, ", updates is ", state.updates,
                                " and skipped_in_a_row is ", state.skipped_in_a_row,
                                "; none may be negative, and updates at most step");
  }
  const auto missing = [](const char* part, const char* option) {
    return FailedPreconditionError("set_state: the state has a ", part,
                                   ", the trainer has none; set TrainerOptions::", option,
                                   ", or clear it in the state");
  };
  if (state.loss_scaler && !scaler_) return missing("loss scaler", "loss_scaler");
  if (state.plateau && !plateau_) return missing("plateau", "plateau");
  std::optional<LossScaler> scaler = scaler_;
  std::optional<Plateau> plateau = plateau_;
  if (state.loss_scaler) AIT_RETURN_IF_ERROR(scaler->set_state(*state.loss_scaler));
  if (state.plateau) AIT_RETURN_IF_ERROR(plateau->set_state(*state.plateau));
  scaler_ = std::move(scaler);
  plateau_ = std::move(plateau);
  step = first_step_ = state.step;
  updates = state.updates;
  skipped_ = state.step - state.updates;
  skipped_in_a_row_ = state.skipped_in_a_row;
  begin_.reset();
  return OkStatus();
}

Trainer::Trainer(DataParallel& engine, const Optimizer& optimizer, TrainerOptions options)
    : impl_(std::make_unique<Impl>(engine, optimizer, std::move(options))) {}
Trainer::~Trainer() = default;

bool Trainer::done() const { return impl_->done(); }
std::int64_t Trainer::step() const { return impl_->step; }
const StepMemory* Trainer::memory() const {
  const std::optional<StepMemory>& memory = impl_->watch.last_step();
  return memory ? &*memory : nullptr;
}
const OutOfMemoryReport* Trainer::out_of_memory() const {
  const std::optional<OutOfMemoryReport>& report = impl_->watch.report();
  return report ? &*report : nullptr;
}
Status Trainer::ExplainOutOfMemory(const Status& error) {
  const Status explained = impl_->watch.Explain(error, impl_->place());
  return impl_->watch.WithReport(explained);
}
std::int64_t Trainer::updates() const { return impl_->updates; }
const Status& Trainer::status() const { return impl_->status; }
const Status& Trainer::metrics_status() const { return impl_->metrics_status; }
Status Trainer::Observe(double metric) { return impl_->Observe(metric); }
TrainerState Trainer::state() const { return impl_->state(); }
Status Trainer::set_state(const TrainerState& state) { return impl_->set_state(state); }

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
  return impl_->InCheckpoint([&] { return impl_->Save(path); });
}

Status Trainer::Load(const std::string& path) {
  AIT_RETURN_IF_ERROR(impl_->status);
  return impl_->InCheckpoint([&] { return impl_->Load(path); });
}

Status Trainer::Impl::InCheckpoint(const std::function<Status()>& body) {
  Status done = internal::CatchAsStatus([&] {
    const MemoryLabel label("checkpoint");
    Enter(MemoryPhase::kCheckpoint).IgnoreError();  // which fails in steps alone
    return body();
  });
  done = watch.WithReport(watch.Explain(done, place()));
  internal::CatchAsStatus([&] { return Enter(MemoryPhase::kLoad); }).IgnoreError();
  return done;
}

Status Trainer::Impl::Save(const std::string& path) {
  if (!engine.buffers().empty() && engine.communicator()->size().value() > 1)
    AIT_RETURN_IF_ERROR(engine.BroadcastBuffers());
  AIT_ASSIGN_OR_RETURN(const WholeParameters whole, engine.GatherFull());
  Status saved;
  if (is_first()) {
    if (path.empty() && options.directory.empty()) {
      saved = InvalidArgumentError("Save has no path, and the trainer no directory");
    } else {
      saved =
          SaveWeights(path.empty() ? options.directory + "/weights.safetensors" : path, Weights());
    }
  }
  return Agree(saved, "weights saved");
}

Status Trainer::Impl::Load(const std::string& path) {
  const NamedTensors weights = Weights();
  AIT_ASSIGN_OR_RETURN(WholeParameters whole, engine.GatherFull());
  AIT_RETURN_IF_ERROR(Agree(CheckWeights(path, weights), "weights fit"));
  const Status loaded = Agree(LoadWeights(path, weights).status(), "weights loaded");
  // Some ranks may have other weights now than the rest.
  if (!loaded.ok()) return End(Annotate(loaded, "the run has ended while weights were read"));
  return whole.Keep();
}

}  // namespace ait::inline v0

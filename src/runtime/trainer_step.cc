// SPDX-License-Identifier: Apache-2.0
// One step: micro-batches, the decision of all ranks, and the update or the skip that follows.
// Keep the order.
#include "tensor/torch_internal.h"
// clang-format off
#include <ATen/ops/item.h>
#include <ATen/ops/mul.h>
// clang-format on

#include <bit>
#include <cmath>
#include <optional>
#include <utility>

#include "ait/optim/norm.h"
#include "ait/tensor/autocast.h"
#include "parallel/hash_internal.h"
#include "runtime/trainer_impl.h"
#include "tensor/catch.h"

namespace ait::inline v0 {
namespace {

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

StatusOr<StepResult> Trainer::Impl::RunStep(const Forward& forward,
                                            const std::atomic<bool>& stop_requested) {
  const Time now = options.clock->now();
  if (!begin_) begin_ = step_begin_ = now;
  const bool is_last = micro_step_ + 1 == options.accumulate;
  AIT_RETURN_IF_ERROR(RunMicroStep(forward, is_last));
  ++micro_step_;
  if (!is_last) {
    AIT_RETURN_IF_ERROR(Enter(MemoryPhase::kLoad));
    return StepResult{.outcome = StepOutcome::kAccumulated, .metrics = {.step = step}};
  }

  AIT_ASSIGN_OR_RETURN(const Rate rate, RateOfStep());
  const std::uint64_t request = stop_requested.load(std::memory_order_relaxed) ? 1 : 0;
  AIT_RETURN_IF_ERROR(Enter(MemoryPhase::kCommunication));
  const auto summary = FinishGradients({.count = count_,
                                        .loss_sum = loss_sum_,
                                        .loss_scale = loss_scale(),
                                        .norm = options.norm,
                                        .must_agree = MustAgree(rate.learning_rate),
                                        .requests = request});
  if (!summary.ok()) return engine.status().ok() ? End(AtStep(summary.status())) : summary.status();
  AIT_RETURN_IF_ERROR(Enter(MemoryPhase::kOptimizer));
  return FinishStep(*summary, rate);
}

StatusOr<GradientSummary> Trainer::Impl::FinishGradients(const StepInput& input) {
  const MemoryLabel label("communication");
  return engine.FinishGradients(input);
}

Status Trainer::Impl::AtStep(const Status& reason) const {
  return Annotate(reason, StrCat("step ", step + 1));
}

StatusOr<Trainer::Impl::Rate> Trainer::Impl::RateOfStep() const {
  const auto factor = internal::CatchAsStatus([&] { return options.schedule.FactorAt(updates); });
  if (!factor.ok()) return Annotate(factor.status(), "the schedule failed");
  const double whole = *factor * (plateau_ ? plateau_->factor() : 1);
  return Rate{.factor = whole, .learning_rate = learning_rate_ * whole};
}

std::uint64_t Trainer::Impl::MustAgree(double learning_rate) const {
  return internal::Hash64()
      .Add(fingerprint_)
      .Add(static_cast<std::uint64_t>(step))
      .Add(static_cast<std::uint64_t>(updates))
      .Add(std::bit_cast<std::uint64_t>(learning_rate))
      .Add(std::bit_cast<std::uint64_t>(loss_scale()))
      .value();
}

Status Trainer::Impl::CheckScaling(bool autocast_is_fp16) {
  const bool is_fp16 = parameters_are_fp16_ || autocast_is_fp16;
  if (is_fp16 && !scaler_) {
    return InvalidArgumentError(
        parameters_are_fp16_ ? "the parameters are" : "autocast is",
        " float16, and there is no loss scaler: gradients below 6e-8 would become zeros; set "
        "TrainerOptions::loss_scaler, or use bfloat16");
  }
  if (!is_fp16 && scaler_) {
    return InvalidArgumentError(
        "there is a loss scaler, and neither the parameters nor autocast are float16: bfloat16 and "
        "float32 need none; leave TrainerOptions::loss_scaler empty");
  }
  return OkStatus();
}

StatusOr<std::int64_t> Trainer::Impl::RunForward(const Forward& forward, at::Tensor& sum) {
  const MemoryLabel label("forward");
  const bool outer_is_fp16 = Autocast::Current() == DType::kFloat16;
  const std::int64_t before = Autocast::opened(DType::kFloat16);
  std::optional<Autocast> scope;
  if (options.autocast) scope.emplace(*options.autocast);
  auto count = internal::CatchAsStatus([&] { return forward(sum); });
  scope.reset();
  if (!count.ok()) return Annotate(count.status(), "the loss function failed");
  AIT_RETURN_IF_ERROR(CheckScaling((outer_is_fp16 && !options.autocast) ||
                                   Autocast::opened(DType::kFloat16) > before));
  return count;
}

Status Trainer::Impl::RunMicroStep(const Forward& forward, bool is_last) {
  AIT_RETURN_IF_ERROR(Enter(MemoryPhase::kForward));
  step_is_open_ = true;
  AIT_RETURN_IF_ERROR(engine.BeginMicroStep(is_last ? MicroStep::kLast : MicroStep::kAccumulate));
  at::Tensor sum;
  AIT_ASSIGN_OR_RETURN(const std::int64_t count, RunForward(forward, sum));
  AIT_RETURN_IF_ERROR(CheckLoss(sum, count));
  const auto value = internal::CatchAsStatus([&] { return sum.item<double>(); });
  AIT_RETURN_IF_ERROR(value.status());
  count_ += count;
  loss_sum_ += *value;
  if (scaler_) {  // in fp32: a loss of fp16 times the scale would overflow
    AIT_RETURN_IF_ERROR(
        internal::CatchAsStatus([&] { sum = sum.to(at::kFloat).mul(loss_scale()); }));
  }
  AIT_RETURN_IF_ERROR(Enter(MemoryPhase::kBackward));
  const MemoryLabel label("backward");
  return engine.Backward(sum);
}

StepOptions Trainer::Impl::UpdateOptions(const GradientSummary& summary, double factor) const {
  const double count = static_cast<double>(summary.count) * loss_scale();
  StepOptions step_options{.learning_rate_factor = factor, .clip_value = options.clip_value};
  if (options.norm.scope == NormScope::kEachGroup && !std::isinf(options.clip_norm)) {
    for (const double norm : summary.group_norms)
      step_options.group_scales.push_back(ClipFactor(norm, options.clip_norm));
    step_options.gradient_scale = 1 / count;
  } else {
    step_options.gradient_scale = ClipFactor(summary.norm, options.clip_norm) / count;
  }
  return step_options;
}

StatusOr<StepResult> Trainer::Impl::FinishStep(const GradientSummary& summary, const Rate& rate) {
  const bool finite = summary.finite && summary.loss_not_finite < 0;
  if (finite) {
    const MemoryLabel label("optimizer");
    AIT_RETURN_IF_ERROR(engine.Update(UpdateOptions(summary, rate.factor)));
  } else {
    AIT_RETURN_IF_ERROR(engine.Discard());
  }
  step_is_open_ = false;
  count_ = micro_step_ = 0;
  loss_sum_ = 0;
  ++step;
  if (finite) ++updates;
  stopped_ = summary.requests != 0;
  // What the program does until it calls again. Limits are looked at, and fail no load.
  Enter(MemoryPhase::kLoad).IgnoreError();
  if (!finite) ++skipped_;
  skipped_in_a_row_ = finite ? 0 : skipped_in_a_row_ + 1;
  const double scale = loss_scale();
  const Status scaled = MoveScale(summary);

  StepResult result{.outcome = finite ? StepOutcome::kUpdated : StepOutcome::kSkipped,
                    .metrics = Measure(summary, rate.learning_rate, scale)};
  if (is_first()) Report(result.metrics);
  if (!finite) AIT_RETURN_IF_ERROR(AfterSkip(summary, scaled));
  if (done()) progress_.Finish();
  return result;
}

Status Trainer::Impl::MoveScale(const GradientSummary& summary) {
  // A loss that is not finite says nothing about the scale.
  if (!scaler_ || summary.loss_not_finite >= 0) return OkStatus();
  return scaler_->Update(summary.finite ? Gradients::kFinite : Gradients::kNotFinite);
}

Status Trainer::Impl::AfterSkip(const GradientSummary& summary, const Status& scaled) {
  const bool is_loss = summary.loss_not_finite >= 0;
  std::string what =
      is_loss ? StrCat("the loss of rank ", summary.loss_not_finite,
                       " is not finite (the sum over all is ", summary.loss_sum, ")")
              : StrCat("the gradient of parameter ", summary.not_finite, " is not finite");
  what = StrCat("step ", step, " was skipped: ", what);
  if (!scaled.ok()) return End(Annotate(scaled, what));
  const bool scaler_counts = scaler_ && !is_loss;
  if (scaler_counts || skipped_in_a_row_ <= options.nonfinite_limit) {
    if (scaler_counts) what += StrCat("; the loss scale is ", scaler_->scale(), " now");
    if (is_first()) Log(options.log, Severity::kWarning, "runtime", what);
    return OkStatus();
  }
  return End(OutOfRangeError(what, "; it is number ", skipped_in_a_row_, " in a row, allowed are ",
                             options.nonfinite_limit,
                             "; lower the learning rate, set clip_norm, or look at the data"));
}

}  // namespace ait::inline v0

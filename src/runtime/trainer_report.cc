// SPDX-License-Identifier: Apache-2.0
// What a trainer tells of a step.
#include <algorithm>
#include <cmath>
#include <utility>

#include "runtime/trainer_impl.h"

namespace ait::inline v0 {
namespace {

/// Time left of a run that has taken `elapsed` for the part `done` of it.
std::optional<Duration> Remaining(Duration elapsed, double done) {
  constexpr double kLongest = 1e9;  // seconds; a guess of more, 30 years, is none
  const double left = Seconds(elapsed) * (1 - std::min(done, 1.0)) / done;
  if (!(done > 0) || !(left <= kLongest)) return std::nullopt;
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(left));
}

}  // namespace

StepMetrics Trainer::Impl::Measure(const GradientSummary& summary, double learning_rate,
                                   double loss_scale) {
  const Time now = options.clock->now();
  const Duration step_time = now - std::exchange(step_begin_, now);
  const StepCounters& counters = engine.counters();
  StepMetrics metrics{.step = step,
                      .total_steps = options.total_steps,
                      .loss = summary.loss_sum / static_cast<double>(summary.count),
                      .learning_rate = learning_rate,
                      .gradient_norm = summary.norm,
                      .step_time = step_time,
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
  watch.EndStep(metrics);
  if (scaler_) metrics.loss_scale = loss_scale;
  if (options.steps_per_epoch) metrics.epoch = static_cast<double>(step) / *options.steps_per_epoch;
  const Duration data_wait = options.data_wait ? options.data_wait() : Duration::zero();
  if (step_time > Duration::zero()) {
    if (options.data_wait) metrics.data_wait = Seconds(data_wait) / Seconds(step_time);
    metrics.tokens_per_second = static_cast<double>(summary.count) / Seconds(step_time);
    metrics.exposed_communication = Seconds(counters.exposed) / Seconds(step_time);
  }
  if (options.total_steps) {
    metrics.remaining = (now - *begin_) / (step - first_step_) * (*options.total_steps - step);
  } else if (options.progress_fraction) {
    metrics.remaining = Remaining(now - *begin_, options.progress_fraction());
  }
  return metrics;
}

void Trainer::Impl::Report(const StepMetrics& metrics) {
  if (metrics_) {
    const bool was_ok = metrics_status.ok();
    metrics_status = metrics_->Append(metrics);
    if (was_ok && !metrics_status.ok())
      Log(options.log, Severity::kWarning, "runtime", Message(metrics_status));
  }
  progress_.Update(metrics);
}

}  // namespace ait::inline v0

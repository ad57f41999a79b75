// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OBSERVE_STEP_METRICS_H_
#define AIT_OBSERVE_STEP_METRICS_H_

// What one training step reports: the record behind the progress line and metrics.jsonl.
//
// What nobody measured is nullopt and is `null` in JSON; it is never a zero.
// Numbers that JSON cannot write (a loss that is NaN) become the strings "nan", "inf" and "-inf".
//
//   StepMetrics metrics{.step = 12, .loss = 3.21};
//   std::string line = ToJson(metrics);      // {"step":12,"total_steps":null,…,"loss":3.21,…}

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ait/base/clock.h"
#include "ait/base/status.h"
#include "ait/base/types.h"

namespace ait::inline v0 {

struct StepMetrics {
  std::int64_t step = 0;                    // the step that ended; the first is 1
  std::optional<std::int64_t> total_steps;  // of the run
  std::optional<double> epoch;              // passes over the data, with fraction
  std::optional<double> loss;               // mean per counted unit (token) over all ranks
  std::optional<double> learning_rate;
  std::optional<double> gradient_norm;  // before clipping, over all ranks
  std::optional<double> tokens_per_second;
  std::optional<Duration> step_time;
  std::optional<double> exposed_communication;  // part of the step spent waiting for peers, 0 to 1
  std::optional<double> data_wait;              // part of the step spent waiting for data, 0 to 1
  std::optional<Bytes> host_memory;             // resident, of this process
  std::optional<Duration> elapsed;              // since the run began
  std::optional<Duration> remaining;            // expected
  std::int64_t skipped_steps = 0;               // so far, for a loss or gradient that is not finite
  std::optional<double> loss_scale;             // that the losses of the step were multiplied by
  /// Counters of the step by name, such as {"collectives", 12}; in the order given.
  std::vector<std::pair<std::string, std::int64_t>> counters;
};

/// One line of JSON without a newline. Keys are the field names with the unit at the end where
/// there is one: `step_time_ms`, `host_memory_bytes`, `elapsed_s`, `remaining_s`; always all of
/// them, in the order of the struct.
std::string ToJson(const StepMetrics& metrics);

/// Reads what `ToJson` wrote. Keys it does not know are ignored; missing ones are unknown.
/// **Errors.** DataLoss: not one JSON object, no `step`, or a field of the wrong type; the text
/// names it.
StatusOr<StepMetrics> StepMetricsFromJson(std::string_view line);

}  // namespace ait::inline v0

#endif  // AIT_OBSERVE_STEP_METRICS_H_

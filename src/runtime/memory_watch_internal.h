// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_RUNTIME_MEMORY_WATCH_INTERNAL_H_
#define AIT_RUNTIME_MEMORY_WATCH_INTERNAL_H_

// A trainer's eye on memory: marks the phases, looks at the limits, and explains errors.

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ait/base/log.h"
#include "ait/observe/step_metrics.h"
#include "ait/optim/optimizer.h"
#include "ait/parallel/data_parallel.h"
#include "ait/runtime/out_of_memory.h"

namespace ait::inline v0::internal {

/// What a watch is told once.
struct MemoryWatchSetup {
  const MemoryWatchOptions* options = nullptr;  // these three outlive the watch
  LogSink* log = nullptr;
  Clock* clock = nullptr;
  OptimizerKind optimizer = OptimizerKind::kAdam;
  StateFormat state = StateFormat::kFloat32;
  int micro_steps = 1;
};

/// Where in the run the trainer is.
struct StepPlace {
  std::int64_t step = 0;
  int micro_step = 0;
};

class MemoryWatch {
 public:
  MemoryWatch(DataParallel& engine, const MemoryWatchSetup& setup);

  /// **Errors.** ResourceExhausted: at risk, and the options say that the step fails.
  Status Begin(MemoryPhase phase, const StepPlace& place);
  /// Takes the step into account, adds what is known to its metrics, and tells of growth. What
  /// needs a longer look is that of the last interval.
  void EndStep(StepMetrics& metrics);

  /// If `status` is about memory, makes the report, and returns the status with its summary; else
  /// returns it as it is.
  Status Explain(const Status& status, const StepPlace& place);
  /// The same status with the table of the report behind it.
  Status WithReport(const Status& explained) const;

  const std::optional<OutOfMemoryReport>& report() const { return report_; }
  const std::optional<StepMemory>& last_step() const { return last_step_; }

 private:
  /// True at most once an interval.
  bool IsTime(Time& next) const;
  /// By a watch of its own, so that the next look still finds what has changed since the last one.
  MemoryPressure LimitsNow() const;
  Status Look(MemoryPhase phase, const StepPlace& place);
  void LookForGrowth(std::int64_t step);
  void AddCounters(const StepMemory& memory, StepMetrics& metrics) const;
  std::string Where(MemoryPhase phase, const StepPlace& place) const;

  OutOfMemoryReport MakeReport(MemoryFailure failure, std::optional<Bytes> asked,
                               const StepPlace& place);
  void AddRemedies(OutOfMemoryReport& report) const;

  DataParallel& engine_;
  const MemoryWatchSetup setup_;
  const MemoryPressureOptions limits_;
  MemoryPhases phases_;
  MemoryPressureWatch pressure_;
  std::optional<MemoryGrowth> growth_;

  Time next_look_{};
  Time next_growth_{};
  Time next_process_{};
  ProcessMemory process_;
  bool has_warned_ = false;
  bool failed_at_risk_ = false;
  std::vector<std::string> told_growth_;
  std::optional<StepMemory> last_step_;
  std::int64_t most_added_ = 0;  // by forward and backward of a step so far
  std::int64_t most_added_on_device_ = 0;
  std::optional<Duration> step_time_;
  std::optional<OutOfMemoryReport> report_;
};

/// What would save `missing` bytes of what the engine and the last step take.
std::vector<Remedy> RemediesOf(const DataParallel& engine, const MemoryWatchSetup& setup,
                               std::int64_t activation_bytes, double step_seconds, Bytes missing);

/// Whether a limit leaves too little for `asked`, with what an allocator takes beside it.
bool IsTooSmall(const MemoryRoom& room, Bytes asked);

OptimizerKind KindOf(const Optimizer& optimizer);
StateFormat StateFormatOf(const Optimizer& optimizer);

}  // namespace ait::inline v0::internal

#endif  // AIT_RUNTIME_MEMORY_WATCH_INTERNAL_H_

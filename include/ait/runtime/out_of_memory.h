// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_RUNTIME_OUT_OF_MEMORY_H_
#define AIT_RUNTIME_OUT_OF_MEMORY_H_

// What a trainer says when memory runs out: where in the step, how much was asked for and of what
// budget, who holds the most, and what would help.
//
//   auto tracked = TrackingResource::Create(HeapResource::Create());    // libtorch's CPU memory, too:
//   Trainer trainer(*engine, AdamW(), {.memory = {.holders = tracked}});    // see docs/out-of-memory.md
//   auto step = trainer.Step(batch, loss);
//   if (!step.ok()) Print(step.status());                               // the report is in the text
//   if (const OutOfMemoryReport* report = trainer.out_of_memory()) Show(report->holders);
//
// An allocation that fails, on the host or on a device, is an error as ever, with the report behind
// it. A limit of a cgroup fails no allocation: the kernel kills instead. So the trainer looks how
// near the limits are (ait/observe/memory_pressure.h), at most every `MemoryWatchOptions::interval`,
// and warns, or ends the run with an error while it still can.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ait/activation/memory_model.h"
#include "ait/base/clock.h"
#include "ait/base/types.h"
#include "ait/memory/tracking.h"
#include "ait/observe/memory_growth.h"
#include "ait/observe/memory_phases.h"
#include "ait/observe/memory_pressure.h"
#include "ait/observe/process_memory.h"
#include "ait/parallel/memory_report.h"

namespace ait::inline v0 {

/// What a trainer does when the verdict on memory is MemoryVerdict::kAtRisk.
enum class AtRisk : std::uint8_t {
  kIgnore,
  kWarn,      // tells the log, once until the verdict is better
  kFailStep,  // and ends the run with an error on all ranks, if a limit is near at which the kernel
              // kills; stalls, and kills of others in the cgroup, are warnings
};

/// How a trainer watches memory. The default reads /proc alone and costs some microseconds a step.
struct MemoryWatchOptions {
  /// Who holds what. The trainer adds the labels "forward", "backward", "communication", "optimizer"
  /// and "checkpoint"; labels of the program go behind them, after a slash.
  std::shared_ptr<TrackingResource> holders = nullptr;
  /// Bytes in use: `LiveBytesOf` a resource that libtorch's memory comes from.
  MemorySource live = nullptr;
  /// Bytes in use on the device of this rank, such as those of libtorch's caching allocator.
  MemorySource device = nullptr;
  MemoryPeaks peaks = MemoryPeaks::kMarks;

  AtRisk at_risk = AtRisk::kWarn;
  std::optional<MemoryPressureOptions> pressure = {};  // nullopt: the default ones
  /// Least time between two looks at limits, growth and holders.
  Duration interval = std::chrono::milliseconds(250);
  /// Growth from step to step goes to the log, once for each thing that grows; nullopt: not looked
  /// for.
  std::optional<MemoryGrowthOptions> growth = MemoryGrowthOptions();

  /// For remedies: what segments of the model cost (ait/activation/planner.h). Empty: the report
  /// takes the most that forward and backward added in a step so far, as if the model had eight equal segments, and says so.
  std::vector<SegmentCost> segments = {};
  /// Samples of a micro-batch; 0: unknown.
  std::int64_t micro_batch = 0;
};

enum class MemoryFailure : std::uint8_t {
  kHost,    // an allocation of host memory was refused
  kDevice,  // one of a device
  kRisk,    // none yet: a limit at which the kernel kills is near
};

struct OutOfMemoryReport {
  MemoryFailure failure = MemoryFailure::kHost;
  int rank = 0;
  std::int64_t step = 0;  // in progress, or to come
  int micro_step = 0;     // the first is 1
  int micro_steps = 1;    // of a step
  std::optional<MemoryPhase> phase;
  std::string reason;          // the text of the error, or of the verdict
  std::optional<Bytes> asked;  // by the allocation that failed

  std::vector<MemoryRoom> budgets;  // the one that was too small, or allows the least, first
  ProcessMemory process;
  ResidentSplit split;
  std::optional<MallocMemory> malloc;
  MemoryUse device;

  StepMemory step_so_far;
  std::optional<StepMemory> last_step;  // the last whole one
  MemoryReport model;                   // of the engine

  bool has_holders = false;           // there is a TrackingResource
  std::vector<MemoryHolder> holders;  // its five largest
  std::string growth;                 // as MemoryGrowthReport::Describe
  std::vector<Remedy> remedies;       // the cheapest three
  std::optional<Bytes> missing;       // what they are measured by: at least so much too much;
                                      // nullopt: unknown, and so is whether one suffices
  bool segments_are_guessed = false;
  bool activations_are_unknown = false;  // so remedies for them are left out

  /// "out of memory in forward: 1.0 GiB asked, 88.1 MiB left of 4.0 GiB (/sys/fs/cgroup/…)".
  std::string Summary() const;
  /// A line with rank, step, summary and reason, and a table below it.
  std::string Describe() const;
};

}  // namespace ait::inline v0

#endif  // AIT_RUNTIME_OUT_OF_MEMORY_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OBSERVE_MEMORY_PHASES_H_
#define AIT_OBSERVE_MEMORY_PHASES_H_

// How much memory each phase of a training step takes: what was there when it began, when it ended,
// and the most in between.
//
//   MemoryPhases phases({.live = LiveBytesOf(counted)});
//   phases.Begin(MemoryPhase::kForward);      // ends the phase before
//   phases.Begin(MemoryPhase::kBackward);
//   phases.End();
//   StepMemory step = phases.EndStep();
//   Show(step.of(MemoryPhase::kForward).live.peak, step.resident.peak);
//
// Resident memory is read from /proc. Live bytes, and those of a device, come from functions of the
// program, so that nothing here needs libtorch or CUDA. What nobody can tell is nullopt.
//
// **Peaks.** Live bytes have exact ones if their function tells them, as `LiveBytesOf` does. Those
// of resident memory are exact with `MemoryPeaks::kKernel`; else they are at least what was seen at
// the marks, and exact where the process was larger than ever before.
//
// **Cost.** A mark reads one or two files that stay open: 1 microsecond, with kKernel 10.
// **Thread-safety.** Begin, End and EndStep from one thread at a time. With kSampled the functions
// of the program are called from another thread, too. A forked child makes an object of its own.

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "ait/base/clock.h"
#include "ait/base/types.h"

namespace ait::inline v0 {

class StatisticsResource;

enum class MemoryPhase : std::uint8_t {
  kLoad,  // the program between steps: reading data
  kForward,
  kBackward,       // and the reductions that overlap with it
  kCommunication,  // what is left of them after backward, and the decision of the step
  kOptimizer,
  kCheckpoint,  // saving and loading files
};
inline constexpr std::size_t kMemoryPhaseCount = 6;

/// "load", "forward", "backward", "communication", "optimizer", "checkpoint".
std::string_view Name(MemoryPhase phase);

/// What a function of the program tells of memory that it counts. One that throws does not know.
struct MemoryUse {
  std::optional<Bytes> now;
  std::optional<Bytes> peak;  // the most since the function was last asked
};
using MemorySource = std::function<MemoryUse()>;

/// Counts the bytes that `resource` has handed out, with exact peaks. For one `MemoryPhases`.
MemorySource LiveBytesOf(std::shared_ptr<StatisticsResource> resource);

/// How peaks of resident memory inside a phase are found.
enum class MemoryPeaks : std::uint8_t {
  kMarks,    // by what is seen at both ends, and by the largest the process has ever been
  kSampled,  // a thread looks as well, every `sample_interval`
  /// The kernel's high-water mark is set back at every mark (/proc/self/clear_refs). Exact. That
  /// mark belongs to the whole process: what else reads VmHWM sees it fall, and only one
  /// MemoryPhases of a process may do so.
  kKernel,
};

struct MemoryPhasesOptions {
  MemorySource live = nullptr;
  MemorySource device = nullptr;
  MemoryPeaks peaks = MemoryPeaks::kMarks;
  Duration sample_interval = std::chrono::milliseconds(1);
  std::string proc = "/proc";
};

/// Bytes of one kind over a phase or a step.
struct MemoryLevel {
  std::optional<Bytes> begin;  // when it began, for the first time in the step
  std::optional<Bytes> end;    // when it ended, for the last time
  std::optional<Bytes> peak;
};

struct PhaseMemory {
  int times = 0;  // that the phase was in; once for each micro-batch
  MemoryLevel resident;
  MemoryLevel live;
  MemoryLevel device;
};

/// A step, from the end of the one before.
struct StepMemory {
  std::array<PhaseMemory, kMemoryPhaseCount> phases;
  MemoryLevel resident;
  MemoryLevel live;
  MemoryLevel device;

  const PhaseMemory& of(MemoryPhase phase) const { return phases[static_cast<std::size_t>(phase)]; }
  /// The phase in which the most was live, or resident where live bytes are unknown.
  std::optional<MemoryPhase> largest() const;
};

class MemoryPhases {
 public:
  explicit MemoryPhases(MemoryPhasesOptions options = {});
  ~MemoryPhases();
  MemoryPhases(const MemoryPhases&) = delete;
  MemoryPhases& operator=(const MemoryPhases&) = delete;

  /// Ends the phase that is open, if one is, and begins another.
  void Begin(MemoryPhase phase);
  /// Ends the phase that is open.
  void End();

  /// What the step took so far, the open phase included, and begins the next step.
  StepMemory EndStep();

  /// The open phase.
  std::optional<MemoryPhase> current() const;
  /// What the open step took so far, the open phase included.
  StepMemory SoFar();

  /// How peaks are found, which may be less than was asked for; and then why, else an empty text.
  MemoryPeaks peaks() const;
  const std::string& fallback() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ait::inline v0

#endif  // AIT_OBSERVE_MEMORY_PHASES_H_

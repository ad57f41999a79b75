// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_ACTIVATION_SCHEDULE_H_
#define AIT_ACTIVATION_SCHEDULE_H_

// What to keep, recompute or offload: arithmetic over the costs of segments, without libtorch.
//
// A model runs its segments one after the other, and their backward in reverse order. What segment i
// holds stays from its forward to its backward; while its forward or its backward runs, more than
// that is live. So the peak of a step is
//
//   max over i of ( held of segments before i  +  peak_bytes of segment i )
//
// and the time of a choice is the sum of what its actions cost. `FastestWithin` finds, of all
// choices whose peak is within a budget, one of least time; `LeastMemory` one of least peak.
//
//   AIT_ASSIGN_OR_RETURN(SegmentSchedule schedule, FastestWithin(segments, MiB(300)));
//
// Both go over the segments once and keep the choices that no other one beats in bytes and time
// (a Pareto front), so they are exact: nothing is rounded as long as the front has at most
// `ScheduleOptions::most_points` points. Beyond that bytes are rounded up to a quantum; the result
// still keeps to the budget, and `SegmentSchedule::rounding` says how far the bytes may be off.
//
// Two schedules of the literature for a chain of equal steps stand beside them as a measure:
// `SqrtForwards` (Chen et al., arXiv:1604.06174) and `RevolveForwards` and `Revolve`, which is optimal
// for a number of slots (Griewank and Walther, ACM TOMS 26 (2000), algorithm 799).

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/status.h"
#include "ait/base/types.h"

namespace ait::inline v0 {

enum class SegmentAction : std::uint8_t {
  kKeep,       // what backward needs is kept
  kRecompute,  // the inputs are kept, and forward runs again in backward
  kOffload,    // a policy for saved tensors moves or compresses what is kept
};

/// "keep", "recompute", "offload".
std::string_view Name(SegmentAction action);

/// What one action for one segment costs.
struct ActionCost {
  std::int64_t held_bytes = 0;  // from its forward until its backward has ended
  std::int64_t peak_bytes = 0;  // the most while one of the two runs, beyond what is held before it
  double seconds = 0;           // beyond kKeep
};

struct SegmentCost {
  std::string name;
  ActionCost keep;
  std::optional<ActionCost> recompute = {};  // none: that action is not possible
  std::optional<ActionCost> offload = {};

  /// The cost of an action, which must be possible.
  const ActionCost& of(SegmentAction action) const;
  bool allows(SegmentAction action) const;
};

/// Where a step needs the most.
struct SchedulePeak {
  std::int64_t bytes = 0;
  int segment = -1;                // in whose forward or backward it is; -1: there are none
  std::int64_t held_bytes = 0;     // part of `bytes`: of segments before it
  std::int64_t working_bytes = 0;  // the rest
};

/// `actions` has one for each segment; empty keeps all.
SchedulePeak PeakOf(std::span<const SegmentCost> segments, std::span<const SegmentAction> actions);
/// Beyond keeping all.
double SecondsOf(std::span<const SegmentCost> segments, std::span<const SegmentAction> actions);

struct SegmentSchedule {
  std::vector<SegmentAction> actions;  // one for each segment
  SchedulePeak peak;
  double seconds = 0;         // beyond keeping all
  std::int64_t rounding = 0;  // no choice within the budget less these bytes is faster; 0: exact
};

struct ScheduleOptions {
  int most_points = 4096;  // of the front, at least 2
};

/// **Errors.** ResourceExhausted: no choice keeps to the budget; the text has the least that one
/// needs, and the segment that sets it. InvalidArgument: a cost that is negative or not finite where
/// it may not be, an option that is not allowed. OutOfRange: bytes of all segments over 2^63.
StatusOr<SegmentSchedule> FastestWithin(std::span<const SegmentCost> segments, Bytes budget,
                                        const ScheduleOptions& options = {});

/// The least peak that is possible, and of those choices one of least time.
StatusOr<SegmentSchedule> LeastMemory(std::span<const SegmentCost> segments,
                                      const ScheduleOptions& options = {});

// A chain of `steps` ≥ 1 equal steps; a slot holds the input of one. The backward of a step runs its
// forward once, to record it. Counted, as in the literature, are all other runs of a step's forward:
// they only lead from an input that is held to the next.

/// With a slot every √steps steps, and the inputs of one group rebuilt at a time: the slots that it
/// takes, groups and the inputs inside of one together.
int SqrtSlots(int steps);
/// Runs of forward with it.
std::int64_t SqrtForwards(int steps);

/// The least number of runs of forward with `slots` slots, of which one holds the chain's input.
/// `steps` and `slots` ≥ 1.
std::int64_t RevolveForwards(int steps, int slots);

struct RevolveAction {
  enum class Kind : std::uint8_t { kSave, kAdvance, kRestore, kBackward } kind;
  int step =
      0;  // whose input is saved or restored, up to which forward runs, or whose backward runs
  int slot = 0;  // of kSave and kRestore
};

/// The actions of such a schedule: as many steps advanced as `RevolveForwards` says.
std::vector<RevolveAction> Revolve(int steps, int slots);

}  // namespace ait::inline v0

#endif  // AIT_ACTIVATION_SCHEDULE_H_

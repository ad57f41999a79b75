// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_UNIT_SCHEDULE_INTERNAL_H_
#define AIT_PARALLEL_UNIT_SCHEDULE_INTERNAL_H_

// In which order a micro-step uses its units: learned in one, foretold in the next, so that what
// comes next can be gathered ahead.
//
//   schedule.Begin();
//   schedule.Use(0); schedule.Use(1); schedule.Use(1); schedule.Use(0);   // forward, backward
//   schedule.Begin();
//   schedule.Use(0);
//   schedule.Ahead(1);          // {1}
//
// A micro-step that goes another way is no error: the schedule finds its place again where it can,
// is silent where it cannot, and learns the new way.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace ait::inline v0::internal {

/// **Thread-safety.** As a std::vector.
class UnitSchedule {
 public:
  /// A micro-step begins: what the last one did is expected of it.
  void Begin();

  /// Unit `unit` is needed now.
  void Use(int unit);

  /// The next `count` units that are expected, in order, each once, without the one in use; fewer
  /// at the end or if nothing is known.
  std::vector<int> Ahead(int count) const;

  /// The unit of the next `Use`; -1 if unknown.
  int next() const;

  /// Uses of this micro-step so far, and how many of them were not expected.
  const std::vector<int>& used() const { return used_; }
  std::int64_t surprises() const { return surprises_; }
  /// Counts on from 0.
  std::int64_t TakeSurprises() { return std::exchange(surprises_, 0); }

 private:
  std::vector<int> plan_;
  std::vector<int> used_;
  std::size_t place_ = 0;  // in plan_: the next use; behind its end, nothing is known
  std::int64_t surprises_ = 0;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_PARALLEL_UNIT_SCHEDULE_INTERNAL_H_

// SPDX-License-Identifier: Apache-2.0
#include "ait/activation/schedule.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

#include "activation/byte_text_internal.h"
#include "activation/memory_model_internal.h"

namespace ait::inline v0 {
namespace {

constexpr std::array kActions = {SegmentAction::kKeep, SegmentAction::kRecompute,
                                 SegmentAction::kOffload};

// A choice of actions for the segments so far: what it holds and takes, and how it was come to.
struct Point {
  std::int64_t held = 0;
  double seconds = 0;
  std::int32_t parent = -1;  // index into the front before
  SegmentAction action = SegmentAction::kKeep;
};

struct Step {
  std::int32_t parent;
  SegmentAction action;
};

// Keeps of `points`, in ascending order of bytes and then seconds, those that no other one beats.
void Prune(std::vector<Point>& points) {
  std::size_t kept = 0;
  for (const Point& point : points) {
    if (kept > 0 && point.seconds >= points[kept - 1].seconds) continue;
    points[kept++] = point;
  }
  points.resize(kept);
}

bool Before(const Point& a, const Point& b) {
  return std::pair(a.held, a.seconds) < std::pair(b.held, b.seconds);
}

// Rounds bytes up so that at most `most` points are left; returns the quantum.
std::int64_t Thin(std::vector<Point>& front, int most) {
  const std::int64_t least = front.front().held;
  const std::int64_t quantum = (front.back().held - least) / (most - 1) + 1;
  for (Point& point : front) point.held = least + RoundUp(point.held - least, quantum);
  std::ranges::sort(front, Before);
  Prune(front);
  return quantum;
}

}  // namespace

Status internal::CheckSegments(std::span<const SegmentCost> segments) {
  std::int64_t sum = 0;
  for (const SegmentCost& segment : segments) {
    for (const SegmentAction action : kActions) {
      if (!segment.allows(action)) continue;
      const ActionCost& cost = segment.of(action);
      if (cost.peak_bytes < 0 || !(cost.seconds >= 0) || !std::isfinite(cost.seconds)) {
        return InvalidArgumentError("segment ", segment.name, ": the cost of ", Name(action),
                                    " is ", cost.peak_bytes, " peak bytes and ", cost.seconds,
                                    " s; both must be finite and at least 0");
      }
      const std::int64_t held = cost.held_bytes < 0 ? -(cost.held_bytes + 1) : cost.held_bytes;
      if (__builtin_add_overflow(sum, held, &sum) ||
          __builtin_add_overflow(sum, cost.peak_bytes, &sum)) {
        return OutOfRangeError("segment ", segment.name,
                               " takes the bytes of all segments over 2^63");
      }
    }
  }
  return OkStatus();
}

namespace {

// Whether some choice keeps to the budget. Less held is never worse for what follows, so the action
// that holds least, of those that fit, is right for every segment.
bool Fits(std::span<const SegmentCost> segments, std::int64_t budget) {
  std::int64_t held = 0;
  for (const SegmentCost& segment : segments) {
    std::optional<std::int64_t> least;
    for (const SegmentAction action : kActions) {
      if (!segment.allows(action)) continue;
      const ActionCost& cost = segment.of(action);
      if (held + cost.peak_bytes <= budget) {
        least = std::min(least.value_or(cost.held_bytes), cost.held_bytes);
      }
    }
    if (!least) return false;
    held += *least;
  }
  return true;
}

std::int64_t LeastBudget(std::span<const SegmentCost> segments) {
  std::int64_t below = -1;
  std::int64_t enough = std::max<std::int64_t>(PeakOf(segments, {}).bytes, 0);
  while (enough - below > 1) {
    const std::int64_t middle = below + (enough - below) / 2;
    (Fits(segments, middle) ? enough : below) = middle;
  }
  return enough;
}

SegmentSchedule Made(std::span<const SegmentCost> segments, std::vector<SegmentAction> actions,
                     std::int64_t rounding) {
  const SchedulePeak peak = PeakOf(segments, actions);
  const double seconds = SecondsOf(segments, actions);
  return {.actions = std::move(actions), .peak = peak, .seconds = seconds, .rounding = rounding};
}

// Of the choices within the budget, the fastest; nothing if rounding has left none.
std::optional<SegmentSchedule> Fastest(std::span<const SegmentCost> segments, std::int64_t budget,
                                       int most) {
  std::vector<std::vector<Step>> steps;
  std::vector<Point> front = {Point{}};
  std::int64_t rounding = 0;
  for (const SegmentCost& segment : segments) {
    std::vector<Point> next;
    for (const SegmentAction action : kActions) {
      if (!segment.allows(action)) continue;
      const ActionCost& cost = segment.of(action);
      const auto middle = static_cast<std::ptrdiff_t>(next.size());
      for (std::size_t i = 0; i < front.size(); ++i) {
        if (front[i].held + cost.peak_bytes > budget) break;
        next.push_back({.held = front[i].held + cost.held_bytes,
                        .seconds = front[i].seconds + cost.seconds,
                        .parent = static_cast<std::int32_t>(i),
                        .action = action});
      }
      std::ranges::inplace_merge(next, next.begin() + middle, Before);
    }
    if (next.empty()) return std::nullopt;
    Prune(next);
    if (std::ssize(next) > most) rounding += Thin(next, most);
    front = std::move(next);
    std::vector<Step>& step = steps.emplace_back();
    for (const Point& point : front) step.push_back({point.parent, point.action});
  }
  std::vector<SegmentAction> actions(segments.size());
  auto at = static_cast<std::int32_t>(front.size()) - 1;  // the most bytes, the least time
  for (std::size_t i = segments.size(); i-- > 0;) {
    const Step& step = steps[i][static_cast<std::size_t>(at)];
    actions[i] = step.action;
    at = step.parent;
  }
  return Made(segments, std::move(actions), rounding);
}

// Of the choices that hold least, one: what is left where rounding has left nothing.
SegmentSchedule Smallest(std::span<const SegmentCost> segments, std::int64_t budget) {
  std::vector<SegmentAction> actions;
  std::int64_t held = 0;
  for (const SegmentCost& segment : segments) {
    std::optional<SegmentAction> best;
    for (const SegmentAction action : kActions) {
      if (!segment.allows(action) || held + segment.of(action).peak_bytes > budget) continue;
      if (!best || segment.of(action).held_bytes < segment.of(*best).held_bytes) best = action;
    }
    actions.push_back(best.value_or(SegmentAction::kKeep));
    held += segment.of(actions.back()).held_bytes;
  }
  return Made(segments, std::move(actions), budget);
}

// β(s, r): the most steps that s slots and r runs of each step suffice for.
double Beta(int s, int r) {
  double beta = 1;
  for (int i = 1; i <= r; ++i) beta = beta * (s + i) / i;
  return r < 0 ? 0 : std::round(beta);
}

void Reverse(int begin, int end, int slot, int slots, std::vector<RevolveAction>& actions) {
  using Kind = RevolveAction::Kind;
  const auto restore = [&] { actions.push_back({Kind::kRestore, begin, slot}); };
  if (end - begin == 1) {
    actions.push_back({Kind::kBackward, begin, 0});
    return;
  }
  if (slots == 1) {
    for (int step = end - 1; step >= begin; --step) {
      if (step > begin) actions.push_back({Kind::kAdvance, step, 0});
      actions.push_back({Kind::kBackward, step, 0});
      if (step > begin) restore();
    }
    return;
  }
  const int length = end - begin;
  int best = 1;
  std::int64_t least = std::numeric_limits<std::int64_t>::max();
  for (int middle = 1; middle < length; ++middle) {
    const std::int64_t runs =
        middle + RevolveForwards(length - middle, slots - 1) + RevolveForwards(middle, slots);
    if (runs < least) std::tie(least, best) = std::pair(runs, middle);
  }
  actions.push_back({Kind::kAdvance, begin + best, 0});
  actions.push_back({Kind::kSave, begin + best, slot + 1});
  Reverse(begin + best, end, slot + 1, slots - 1, actions);
  restore();
  Reverse(begin, begin + best, slot, slots, actions);
}

int GroupSize(int steps) {
  return std::max(1, static_cast<int>(std::ceil(std::sqrt(static_cast<double>(steps)))));
}

}  // namespace

std::string_view Name(SegmentAction action) {
  constexpr std::array<std::string_view, 3> kNames = {"keep", "recompute", "offload"};
  return kNames[static_cast<std::size_t>(action)];
}

const ActionCost& SegmentCost::of(SegmentAction action) const {
  if (action == SegmentAction::kRecompute) return *recompute;
  return action == SegmentAction::kOffload ? *offload : keep;
}

bool SegmentCost::allows(SegmentAction action) const {
  if (action == SegmentAction::kRecompute) return recompute.has_value();
  return action == SegmentAction::kKeep || offload.has_value();
}

SchedulePeak PeakOf(std::span<const SegmentCost> segments, std::span<const SegmentAction> actions) {
  SchedulePeak peak;
  std::int64_t held = 0;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const ActionCost& cost = segments[i].of(i < actions.size() ? actions[i] : SegmentAction::kKeep);
    if (peak.segment < 0 || held + cost.peak_bytes > peak.bytes) {
      peak = {.bytes = held + cost.peak_bytes,
              .segment = static_cast<int>(i),
              .held_bytes = held,
              .working_bytes = cost.peak_bytes};
    }
    held += cost.held_bytes;
  }
  return peak;
}

double SecondsOf(std::span<const SegmentCost> segments, std::span<const SegmentAction> actions) {
  double seconds = 0;
  for (std::size_t i = 0; i < std::min(segments.size(), actions.size()); ++i) {
    seconds += segments[i].of(actions[i]).seconds;
  }
  return seconds;
}

StatusOr<SegmentSchedule> FastestWithin(std::span<const SegmentCost> segments, Bytes budget,
                                        const ScheduleOptions& options) {
  AIT_RETURN_IF_ERROR(internal::CheckSegments(segments));
  if (options.most_points < 2) {
    return InvalidArgumentError("most_points is ", options.most_points, "; it must be at least 2");
  }
  if (!Fits(segments, budget.value())) {
    const std::int64_t least = LeastBudget(segments);
    const SchedulePeak peak = Smallest(segments, least).peak;
    return ResourceExhaustedError(
        "a budget of ", internal::ByteText(budget.value()),
        " is below the least that is possible, ", internal::ByteText(least), " (", least,
        " bytes): segment ", segments[static_cast<std::size_t>(peak.segment)].name,
        " sets it, which needs ", internal::ByteText(peak.working_bytes),
        " while it runs, beyond the ", internal::ByteText(peak.held_bytes),
        " that the segments before it hold; raise the budget, cut that segment into smaller ones, "
        "or make the micro-batch smaller");
  }
  std::optional<SegmentSchedule> fastest = Fastest(segments, budget.value(), options.most_points);
  return fastest ? *std::move(fastest) : Smallest(segments, budget.value());
}

StatusOr<SegmentSchedule> LeastMemory(std::span<const SegmentCost> segments,
                                      const ScheduleOptions& options) {
  AIT_RETURN_IF_ERROR(internal::CheckSegments(segments));
  return FastestWithin(segments, Bytes(LeastBudget(segments)), options);
}

int SqrtSlots(int steps) {
  const int size = GroupSize(steps);
  const int groups = (steps + size - 1) / size;
  const int last = steps - (groups - 1) * size;
  return std::max(groups + last - 1, groups > 1 ? groups - 1 + size - 1 : 0);
}

std::int64_t SqrtForwards(int steps) {
  const int size = GroupSize(steps);
  const int groups = (steps + size - 1) / size;
  return (steps - 1) + static_cast<std::int64_t>(groups - 1) * (size - 1);
}

std::int64_t RevolveForwards(int steps, int slots) {
  int runs = 0;
  while (Beta(slots, runs) < steps) ++runs;
  return static_cast<std::int64_t>(runs) * steps -
         static_cast<std::int64_t>(Beta(slots + 1, runs - 1));
}

std::vector<RevolveAction> Revolve(int steps, int slots) {
  std::vector<RevolveAction> actions = {{RevolveAction::Kind::kSave, 0, 0}};
  Reverse(0, steps, 0, slots, actions);
  return actions;
}

}  // namespace ait::inline v0

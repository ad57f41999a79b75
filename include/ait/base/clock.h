// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_BASE_CLOCK_H_
#define AIT_BASE_CLOCK_H_

// Time that a test can hold in its hand, and deadlines made of it.
//
// Everything in ait that waits takes a time-out or a `Deadline`; nothing waits for ever unless the
// caller says `Deadline::Infinite()`.
//
//   Deadline deadline = Deadline::After(std::chrono::seconds(30));
//   while (!Ready() && !deadline.expired()) condition.wait_until(lock, deadline.time());

#include <chrono>
#include <mutex>

namespace ait::inline v0 {

using Duration = std::chrono::steady_clock::duration;
using Time = std::chrono::steady_clock::time_point;

/// A monotonic clock. **Thread-safety.** All calls may come from any thread.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual Time now() const = 0;
  /// Blocks for `duration`, or advances a simulated clock by it.
  virtual void SleepFor(Duration duration) = 0;
};

/// The clock of the machine: std::chrono::steady_clock. It holds no state and lives for ever.
Clock& SystemClock();

/// A clock that moves only when told, for tests.
class ManualClock final : public Clock {
 public:
  Time now() const override;
  void SleepFor(Duration duration) override { Advance(duration); }
  void Advance(Duration duration);

 private:
  mutable std::mutex mutex_;
  Time now_{};
};

/// `duration` in the unit of the clock, which ends after 292 years: what is longer becomes
/// Duration::max(), also "not a number", and what is shorter than its opposite Duration::min().
/// Use it for a duration that a user chooses; std::chrono's own conversion overflows.
template <typename Rep, typename Period>
constexpr Duration Saturate(std::chrono::duration<Rep, Period> duration) {
  // Compared as floating point, which has room for both.
  using Wide = std::chrono::duration<double, Duration::period>;
  const Wide wide(duration);
  if (!(wide < Wide(Duration::max()))) return Duration::max();
  if (wide <= Wide(Duration::min())) return Duration::min();
  return std::chrono::duration_cast<Duration>(duration);
}

/// A point in time after which waiting is given up. A value; 8 bytes.
class Deadline {
 public:
  /// Never expires.
  static constexpr Deadline Infinite() { return Deadline(Time::max()); }
  /// Expires `timeout` from now; a time-out too large for the clock never does.
  template <typename Rep, typename Period>
  static Deadline After(std::chrono::duration<Rep, Period> timeout,
                        const Clock& clock = SystemClock()) {
    return FromNow(Saturate(timeout), clock);
  }
  static constexpr Deadline At(Time time) { return Deadline(time); }

  constexpr Time time() const { return time_; }
  constexpr bool is_infinite() const { return time_ == Time::max(); }
  bool expired(const Clock& clock = SystemClock()) const {
    return !is_infinite() && clock.now() >= time_;
  }
  /// Time left: zero once expired, Duration::max() if infinite.
  Duration remaining(const Clock& clock = SystemClock()) const;

 private:
  static Deadline FromNow(Duration timeout, const Clock& clock);
  constexpr explicit Deadline(Time time) : time_(time) {}
  Time time_;
};

}  // namespace ait::inline v0

#endif  // AIT_BASE_CLOCK_H_

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

/// A point in time after which waiting is given up. A value; 8 bytes.
class Deadline {
 public:
  /// Never expires.
  static constexpr Deadline Infinite() { return Deadline(Time::max()); }
  /// Expires `timeout` from now; a time-out too large for the clock never does.
  static Deadline After(Duration timeout, const Clock& clock = SystemClock());
  static constexpr Deadline At(Time time) { return Deadline(time); }

  constexpr Time time() const { return time_; }
  constexpr bool is_infinite() const { return time_ == Time::max(); }
  bool expired(const Clock& clock = SystemClock()) const {
    return !is_infinite() && clock.now() >= time_;
  }
  /// Time left: zero once expired, Duration::max() if infinite.
  Duration remaining(const Clock& clock = SystemClock()) const;

 private:
  constexpr explicit Deadline(Time time) : time_(time) {}
  Time time_;
};

}  // namespace ait::inline v0

#endif  // AIT_BASE_CLOCK_H_

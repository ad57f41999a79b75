// SPDX-License-Identifier: Apache-2.0
#include "ait/base/clock.h"

#include <thread>

namespace ait::inline v0 {
namespace {

class SteadyClock final : public Clock {
 public:
  Time now() const override { return std::chrono::steady_clock::now(); }
  void SleepFor(Duration duration) override { std::this_thread::sleep_for(duration); }
};

}  // namespace

Clock& SystemClock() {
  static SteadyClock
      clock;  // without state: not a global that two trainers could share by accident
  return clock;
}

Time ManualClock::now() const {
  std::lock_guard lock(mutex_);
  return now_;
}

void ManualClock::Advance(Duration duration) {
  std::lock_guard lock(mutex_);
  now_ += duration;
}

Deadline Deadline::FromNow(Duration timeout, const Clock& clock) {
  const Time now = clock.now();
  if (timeout >= Time::max() - now) return Infinite();
  return Deadline(now + timeout);
}

Duration Deadline::remaining(const Clock& clock) const {
  if (is_infinite()) return Duration::max();
  const Time now = clock.now();
  return now >= time_ ? Duration::zero() : time_ - now;
}

}  // namespace ait::inline v0

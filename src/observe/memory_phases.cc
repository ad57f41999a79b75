// SPDX-License-Identifier: Apache-2.0
#include "ait/observe/memory_phases.h"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "ait/base/status.h"
#include "ait/memory/statistics.h"
#include "base/signal_mask.h"
#include "observe/resident_gauge_internal.h"

namespace ait::inline v0 {
namespace {

using internal::ResidentGauge;

void TakeMost(std::optional<Bytes>& most, const std::optional<Bytes>& value) {
  if (value && (!most || *value > *most)) most = value;
}

/// What is seen at a mark of all kinds of memory.
struct Seen {
  MemoryUse resident;
  MemoryUse live;
  MemoryUse device;
};

/// A function that throws does not know.
MemoryUse Ask(const MemorySource& source) {
  try {
    return source ? source() : MemoryUse();
  } catch (...) {
    return {};
  }
}

/// Later sight of the same stretch.
void Merge(MemoryUse& use, const MemoryUse& later) {
  use.now = later.now;
  TakeMost(use.peak, later.peak);
  TakeMost(use.peak, later.now);
}

void BeginLevel(MemoryLevel& level, const MemoryUse& use) {
  if (!level.begin) level.begin = use.now;
  TakeMost(level.peak, use.now);
}

void EndLevel(MemoryLevel& level, const MemoryUse& use) {
  level.end = use.now;
  TakeMost(level.peak, use.now);
  TakeMost(level.peak, use.peak);
}

template <typename Levels, typename Apply>
void ForEachKind(Levels& levels, const Seen& seen, const Apply& apply) {
  apply(levels.resident, seen.resident);
  apply(levels.live, seen.live);
  apply(levels.device, seen.device);
}

}  // namespace

std::string_view Name(MemoryPhase phase) {
  switch (phase) {
    case MemoryPhase::kLoad:
      return "load";
    case MemoryPhase::kForward:
      return "forward";
    case MemoryPhase::kBackward:
      return "backward";
    case MemoryPhase::kCommunication:
      return "communication";
    case MemoryPhase::kOptimizer:
      return "optimizer";
    case MemoryPhase::kCheckpoint:
      return "checkpoint";
  }
  return "unknown";
}

MemorySource LiveBytesOf(std::shared_ptr<StatisticsResource> resource) {
  auto scope = std::make_shared<std::optional<StatisticsScope>>();
  return [resource = std::move(resource), scope]() -> MemoryUse {
    const std::int64_t now = resource->statistics().current_bytes;
    MemoryUse use{.now = Bytes(now), .peak = {}};
    if (scope->has_value()) {
      const MemoryStatistics since = (*scope)->statistics();
      use.peak = Bytes(now - since.current_bytes + since.peak_bytes);
    }
    scope->emplace(resource);
    return use;
  };
}

std::optional<MemoryPhase> StepMemory::largest() const {
  std::optional<MemoryPhase> best;
  std::optional<Bytes> most;
  const bool by_live = live.peak.has_value();
  for (std::size_t i = 0; i < phases.size(); ++i) {
    const std::optional<Bytes>& peak = by_live ? phases[i].live.peak : phases[i].resident.peak;
    if (!peak || (most && *peak <= *most)) continue;
    most = peak;
    best = static_cast<MemoryPhase>(i);
  }
  return best;
}

class MemoryPhases::Impl {
 public:
  explicit Impl(MemoryPhasesOptions given) : options_(std::move(given)), gauge_(options_.proc) {
    peaks_ = options_.peaks;
    if (peaks_ == MemoryPeaks::kKernel) {
      if (const Status status = gauge_.UseHighWaterMark(); !status.ok()) FallBack(Message(status));
    }
    const Seen seen = Look();
    ForEachKind(step_, seen, BeginLevel);
    if (peaks_ == MemoryPeaks::kSampled) StartSampler();
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      stops_ = true;
    }
    stop_.notify_all();
    if (sampler_.joinable()) sampler_.join();
  }

  void Switch(std::optional<MemoryPhase> next) {
    const std::lock_guard lock(mutex_);
    Mark();
    Open(next);
  }

  StepMemory EndStep() {
    const std::lock_guard lock(mutex_);
    Mark();
    const StepMemory ended = std::exchange(step_, StepMemory{});
    ForEachKind(step_, last_, BeginLevel);
    Open(current_);
    return ended;
  }

  std::optional<MemoryPhase> current() const {
    const std::lock_guard lock(mutex_);
    return current_;
  }
  StepMemory SoFar() {
    const std::lock_guard lock(mutex_);
    Mark();
    return step_;
  }
  MemoryPeaks peaks() const { return peaks_; }
  const std::string& fallback() const { return fallback_; }

 private:
  void FallBack(std::string reason) {
    peaks_ = MemoryPeaks::kMarks;
    fallback_ = std::move(reason);
  }

  Seen Look() {
    Seen seen;
    seen.resident = gauge_.Read();
    seen.live = Ask(options_.live);
    seen.device = Ask(options_.device);
    return seen;
  }

  /// Ends what has lasted since the last mark.
  void Mark() {
    Seen seen = Look();
    if (sampled_) {
      const Seen latest = std::exchange(seen, *std::exchange(sampled_, std::nullopt));
      Merge(seen.resident, latest.resident);
      Merge(seen.live, latest.live);
      Merge(seen.device, latest.device);
    }
    ForEachKind(step_, seen, EndLevel);
    if (current_) ForEachKind(phase(), seen, EndLevel);
    last_ = seen;
  }

  void Open(std::optional<MemoryPhase> next) {
    current_ = next;
    if (!current_) return;
    ++phase().times;
    ForEachKind(phase(), last_, BeginLevel);
  }

  PhaseMemory& phase() { return step_.phases[static_cast<std::size_t>(*current_)]; }

  void StartSampler() {
    try {
      const internal::BlockedSignals blocked;
      sampler_ = std::thread([this] { Sample(); });
    } catch (const std::system_error& error) {
      FallBack(StrCat("no thread for samples of memory: ", error.what()));
    }
  }

  void Sample() {
    pthread_setname_np(pthread_self(), "ait-memory");
    std::unique_lock lock(mutex_);
    while (!stop_.wait_for(lock, options_.sample_interval, [this] { return stops_; })) {
      const Seen seen = Look();
      if (!sampled_) sampled_.emplace();
      Merge(sampled_->resident, seen.resident);
      Merge(sampled_->live, seen.live);
      Merge(sampled_->device, seen.device);
    }
  }

  const MemoryPhasesOptions options_;
  MemoryPeaks peaks_ = MemoryPeaks::kMarks;
  std::string fallback_;

  mutable std::mutex mutex_;
  ResidentGauge gauge_;
  StepMemory step_;
  std::optional<MemoryPhase> current_;
  Seen last_;                    // at the last mark
  std::optional<Seen> sampled_;  // since then, by the sampler
  bool stops_ = false;
  std::condition_variable stop_;
  std::thread sampler_;
};

MemoryPhases::MemoryPhases(MemoryPhasesOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
MemoryPhases::~MemoryPhases() = default;

void MemoryPhases::Begin(MemoryPhase phase) { impl_->Switch(phase); }
void MemoryPhases::End() { impl_->Switch(std::nullopt); }
StepMemory MemoryPhases::EndStep() { return impl_->EndStep(); }
std::optional<MemoryPhase> MemoryPhases::current() const { return impl_->current(); }
StepMemory MemoryPhases::SoFar() { return impl_->SoFar(); }
MemoryPeaks MemoryPhases::peaks() const { return impl_->peaks(); }
const std::string& MemoryPhases::fallback() const { return impl_->fallback(); }

}  // namespace ait::inline v0

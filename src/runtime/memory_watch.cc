// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "ait/comm/communicator.h"
#include "base/memory_refusal.h"
#include "observe/memory_text_internal.h"
#include "runtime/memory_watch_internal.h"
#include "tensor/catch.h"

namespace ait::inline v0::internal {
namespace {

constexpr int kHoldersToName = 5;
constexpr std::size_t kRemediesToName = 3;

/// The most that forward and backward had beyond what was there before, as far as it was seen.
std::int64_t AddedBy(const StepMemory& step, MemoryLevel PhaseMemory::* level) {
  const MemoryLevel& forward = step.of(MemoryPhase::kForward).*level;
  const MemoryLevel& backward = step.of(MemoryPhase::kBackward).*level;
  if (!forward.begin) return 0;
  const Bytes most =
      std::max(forward.peak.value_or(*forward.begin), backward.peak.value_or(*forward.begin));
  return std::max<std::int64_t>(most.value() - forward.begin->value(), 0);
}

std::int64_t ActivationBytes(const StepMemory& step, bool on_device) {
  if (on_device) return AddedBy(step, &PhaseMemory::device);
  return AddedBy(step, step.live.peak ? &PhaseMemory::live : &PhaseMemory::resident);
}

bool Says(const Status& status, std::string_view text) {
  return !text.empty() && Message(status).find(text) != std::string::npos;
}

/// Puts limits that have refused it first; the others stay in the order of what they leave.
void PutRefusalsFirst(std::vector<MemoryRoom>& rooms, const std::optional<Bytes>& asked) {
  if (!asked) return;
  std::ranges::stable_partition(rooms, [&](const MemoryRoom& room) {
    return room.effect == LimitEffect::kRefuses && IsTooSmall(room, *asked);
  });
}

}  // namespace

MemoryWatch::MemoryWatch(DataParallel& engine, const MemoryWatchSetup& setup)
    : engine_(engine),
      setup_(setup),
      limits_(setup.options->pressure.value_or(MemoryPressureOptions())),
      phases_({.live = setup.options->live,
               .device = setup.options->device,
               .peaks = setup.options->peaks}),
      pressure_(limits_) {
  if (setup.options->growth) growth_.emplace(*setup.options->growth);
  if (!phases_.fallback().empty())
    Log(setup_.log, Severity::kInfo, "memory",
        StrCat("peaks of resident memory are those of the marks: ", phases_.fallback()));
  phases_.Begin(MemoryPhase::kLoad);
}

bool MemoryWatch::IsTime(Time& next) const {
  const Time now = setup_.clock->now();
  if (now < next) return false;
  next = now + setup_.options->interval;
  return true;
}

std::string MemoryWatch::Where(MemoryPhase phase, const StepPlace& place) const {
  return StrCat("rank ", engine_.communicator()->rank(), ", step ", place.step, ", ", Name(phase));
}

Status MemoryWatch::Begin(MemoryPhase phase, const StepPlace& place) {
  phases_.Begin(phase);
  if (setup_.options->at_risk == AtRisk::kIgnore) return OkStatus();
  return Look(phase, place);
}

Status MemoryWatch::Look(MemoryPhase phase, const StepPlace& place) {
  if (!IsTime(next_look_)) return OkStatus();
  const MemoryPressure pressure = pressure_.Read();
  const bool warned = std::exchange(has_warned_, pressure.verdict == MemoryVerdict::kAtRisk);
  if (pressure.verdict != MemoryVerdict::kAtRisk) return OkStatus();
  // Where a limit refuses, the allocation that fails tells more; stalls, of which others on the
  // machine may be the cause, end nobody.
  const bool kills = std::ranges::any_of(pressure.rooms, [&](const MemoryRoom& room) {
    return room.source == pressure.source && room.effect == LimitEffect::kKills;
  });
  const bool is_in_step = phase != MemoryPhase::kLoad && phase != MemoryPhase::kCheckpoint;
  if (setup_.options->at_risk == AtRisk::kFailStep && kills && is_in_step) {
    failed_at_risk_ = true;
    return WithRefusal(ResourceExhaustedError("memory is at risk: ", pressure.reason,
                                              "; the step ends before the kernel ends the process"),
                       {});
  }
  if (!warned) {
    Log(setup_.log, Severity::kWarning, "memory",
        StrCat(Where(phase, place), ": memory is at risk: ", pressure.reason));
  }
  return OkStatus();
}

MemoryPressure MemoryWatch::LimitsNow() const { return MemoryPressureWatch(limits_).Read(); }

void MemoryWatch::EndStep(StepMetrics& metrics) {
  const StepMemory memory = phases_.EndStep();
  if (IsTime(next_process_)) process_ = ReadProcessMemory();
  metrics.host_memory = process_.resident;
  AddCounters(memory, metrics);
  if (growth_) {
    growth_->Add({.step = metrics.step, .resident = memory.resident.end, .live = memory.live.end});
    LookForGrowth(metrics.step);
  }
  last_step_ = memory;
  // Resident memory grows in the first steps alone: what was freed stays with the allocators.
  most_added_ = std::max(most_added_, ActivationBytes(memory, false));
  most_added_on_device_ = std::max(most_added_on_device_, ActivationBytes(memory, true));
  step_time_ = metrics.step_time;
}

void MemoryWatch::AddCounters(const StepMemory& memory, StepMetrics& metrics) const {
  const auto add = [&metrics](std::string name, const std::optional<Bytes>& bytes) {
    if (bytes) metrics.counters.emplace_back(std::move(name), bytes->value());
  };
  std::optional<std::int64_t> live;
  if (memory.live.end) live = memory.live.end->value();
  const ResidentSplit split = Split(process_, live);
  add("memory_live_bytes", split.live);
  add("memory_held_bytes", split.held);
  add("memory_file_bytes", split.file);
  add("memory_shared_bytes", split.shared);
  add("memory_swapped_bytes", process_.swapped);
  add("memory_device_bytes", memory.device.end);
  add("memory_peak_bytes", memory.resident.peak);
  add("memory_live_peak_bytes", memory.live.peak);
  add("memory_device_peak_bytes", memory.device.peak);
  for (std::size_t i = 0; i < kMemoryPhaseCount; ++i) {
    const PhaseMemory& phase = memory.phases[i];
    add(StrCat("memory_peak_", Name(static_cast<MemoryPhase>(i)), "_bytes"),
        memory.live.peak ? phase.live.peak : phase.resident.peak);
  }
}

void MemoryWatch::LookForGrowth(std::int64_t step) {
  if (!IsTime(next_growth_)) return;
  const auto& holders = setup_.options->holders;
  if (holders != nullptr) growth_->AddHolders(step, holders->Holders());
  const MemoryGrowthReport report = growth_->Find();
  if (!report.found()) return;
  std::vector<std::string> growing;
  if (report.live) growing.push_back(report.live->what);
  if (report.resident && !report.live) growing.push_back(report.resident->what);
  for (const GrowingMemory& label : report.labels) growing.push_back(label.what);
  const bool is_news = std::ranges::any_of(growing, [this](const std::string& what) {
    return std::ranges::find(told_growth_, what) == told_growth_.end();
  });
  if (!is_news) return;
  told_growth_.insert(told_growth_.end(), growing.begin(), growing.end());
  std::string text = StrCat("rank ", engine_.communicator()->rank(), ": ", report.Describe());
  const MemoryPressure pressure = LimitsNow();
  if (const MemoryRoom* room = pressure.tightest()) {
    if (const auto steps = report.StepsUntil(room->left()))
      text += StrCat("; ", room->source, " is reached in ", *steps, " steps");
  }
  Log(setup_.log, Severity::kWarning, "memory", text);
}

Status MemoryWatch::Explain(const Status& status, const StepPlace& place) {
  const std::optional<MemoryRefusal> refusal = RefusalOf(status);
  if (!refusal || Says(status, report_ ? report_->Summary() : "")) return status;
  const MemoryFailure failure = failed_at_risk_      ? MemoryFailure::kRisk
                                : refusal->on_device ? MemoryFailure::kDevice
                                                     : MemoryFailure::kHost;
  failed_at_risk_ = false;
  // There may be no memory for a report either: then the error has to do without.
  report_.reset();
  Status explained = status;
  CatchAsStatus([&] {
    OutOfMemoryReport report = MakeReport(failure, refusal->asked, place);
    report.reason = Message(status);
    report_ = std::move(report);
    explained = Annotate(status, report_->Summary());
  }).IgnoreError();
  return explained;
}

Status MemoryWatch::WithReport(const Status& explained) const {
  const std::optional<MemoryRefusal> refusal = RefusalOf(explained);
  if (!refusal || !report_) return explained;
  Status whole = explained;
  CatchAsStatus([&] {
    const std::string report = report_->Describe();
    const std::size_t table = report.find("\n  ");
    if (table == std::string::npos || Says(explained, report.substr(table))) return;
    whole =
        WithRefusal(Status(explained.code(), Message(explained) + report.substr(table)), *refusal);
  }).IgnoreError();
  return whole;
}

OutOfMemoryReport MemoryWatch::MakeReport(MemoryFailure failure, std::optional<Bytes> asked,
                                          const StepPlace& place) {
  OutOfMemoryReport report{.failure = failure,
                           .rank = engine_.communicator()->rank().value(),
                           .step = place.step,
                           .micro_step = place.micro_step,
                           .micro_steps = setup_.micro_steps,
                           .phase = phases_.current(),
                           .asked = asked,
                           .budgets = LimitsNow().rooms,
                           .process = ReadProcessMemory(limits_.roots.proc),
                           .malloc = ReadMallocMemory(),
                           .step_so_far = phases_.SoFar(),
                           .last_step = last_step_,
                           .model = engine_.Memory()};
  if (failure == MemoryFailure::kHost) PutRefusalsFirst(report.budgets, asked);
  // Not asked for anew: with kSampled another thread asks the functions of the program, too.
  report.device = {.now = report.step_so_far.device.end, .peak = report.step_so_far.device.peak};
  std::optional<std::int64_t> live;
  if (const auto now = report.step_so_far.live.end) live = now->value();
  report.split = Split(report.process, live);
  if (const auto& holders = setup_.options->holders; holders != nullptr) {
    report.has_holders = true;
    report.holders = holders->Largest(kHoldersToName);
  }
  if (growth_) report.growth = growth_->Find().Describe();
  AddRemedies(report);
  return report;
}

void MemoryWatch::AddRemedies(OutOfMemoryReport& report) const {
  // At least what was asked for and not there; near a limit, what is missing to a tenth of it.
  std::int64_t missing = report.asked.value_or(Bytes(0)).value();
  if (report.failure != MemoryFailure::kDevice && !report.budgets.empty()) {
    const MemoryRoom& room = report.budgets.front();
    const auto reserve =
        static_cast<std::int64_t>(limits_.tight_part * static_cast<double>(room.limit.value()));
    const std::int64_t left = std::max<std::int64_t>(room.left().value(), 0);
    if (missing == 0) missing = reserve - left;
    if (report.asked && left < missing) missing -= left;
  }
  if (missing > 0) report.missing = Bytes(missing);
  const bool on_device = report.failure == MemoryFailure::kDevice;
  const std::int64_t activations = std::max(on_device ? most_added_on_device_ : most_added_,
                                            ActivationBytes(report.step_so_far, on_device));
  const bool has_segments = !setup_.options->segments.empty();
  report.segments_are_guessed = !has_segments && activations > 0;
  report.activations_are_unknown = !has_segments && activations == 0;
  report.remedies = RemediesOf(engine_, setup_, activations, step_time_ ? Seconds(*step_time_) : 0,
                               report.missing.value_or(Bytes(1)));
  if (report.remedies.size() > kRemediesToName) report.remedies.resize(kRemediesToName);
}

}  // namespace ait::inline v0::internal

// SPDX-License-Identifier: Apache-2.0
#include "ait/observe/memory_pressure.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <utility>

#include "ait/base/status.h"
#include "ait/observe/process_memory.h"
#include "observe/memory_text_internal.h"
#include "topology/cgroup_internal.h"
#include "topology/kernel_file_internal.h"

namespace ait::inline v0 {
namespace {

using internal::BytesText;
using internal::ParseNumber;
using internal::ReadInteger;
using internal::ReadKernelFile;
using internal::ValueAfter;
using internal::Words;

/// Version 1 writes "no limit" as the largest multiple of a page; no machine has so much memory.
constexpr std::int64_t kNoLimit = std::int64_t{1} << 60;

/// First number after `key` in a file of lines such as "key 12" or "key: 12 kB".
std::optional<std::int64_t> NumberAfter(std::string_view text, std::string_view key) {
  const auto words = Words(ValueAfter(text, key).value_or(""));
  return words.empty() ? std::nullopt : ParseNumber<std::int64_t>(words[0]);
}

/// "some avg10=12.34 avg60=…": 0.1234, of the line that begins with `key`.
std::optional<double> StalledPart(std::string_view text, std::string_view key) {
  constexpr std::string_view kName = "avg10=";
  const auto words = Words(ValueAfter(text, key).value_or(""));
  if (words.empty() || !words[0].starts_with(kName)) return std::nullopt;
  const std::string_view number = words[0].substr(kName.size());
  double percent = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), percent);
  if (error != std::errc() || end != number.data() + number.size() || !std::isfinite(percent))
    return std::nullopt;
  return percent / 100;
}

std::string_view WhatHappens(LimitEffect effect) {
  switch (effect) {
    case LimitEffect::kKills:
      return "the kernel kills a process at it";
    case LimitEffect::kThrottles:
      return "processes are slowed down at it";
    case LimitEffect::kRefuses:
      return "allocations fail at it";
  }
  return "";
}

std::string PercentText(double part) { return StrCat(std::llround(part * 1000) / 10.0, " %"); }

}  // namespace

std::string_view Name(MemoryVerdict verdict) {
  switch (verdict) {
    case MemoryVerdict::kOk:
      return "ok";
    case MemoryVerdict::kTight:
      return "tight";
    case MemoryVerdict::kAtRisk:
      return "at risk";
  }
  return "unknown";
}

std::string MemoryPressure::Describe() const {
  std::string text = StrCat("memory is ", Name(verdict));
  if (!reason.empty()) text += StrCat(": ", reason);
  text += "\n";
  for (const MemoryRoom& room : rooms) {
    text += StrCat("  ", room.source, ": ", BytesText(room.used), " of ", BytesText(room.limit),
                   " used, ", BytesText(room.left()), " left; ", WhatHappens(room.effect), "\n");
  }
  if (swapped) text += StrCat("  in swap: ", BytesText(*swapped), " of this process\n");
  if (some_stalled)
    text += StrCat("  stalled for memory: ", PercentText(*some_stalled), " of the last 10 s\n");
  if (kills && *kills > 0)
    text += StrCat("  killed by the kernel in this cgroup meanwhile: ", *kills, "\n");
  return text;
}

class MemoryPressureWatch::Impl {
 public:
  explicit Impl(MemoryPressureOptions given)
      : options_(std::move(given)),
        directories_(internal::CgroupDirectories(options_.roots, "memory")) {
    events_ = ReadEvents();
    swapped_before_ = ReadProcessMemory(options_.roots.proc).swapped;
  }

  MemoryPressure Read() {
    MemoryPressure pressure;
    for (const std::string& directory : directories_) ReadCgroup(directory, pressure);
    ReadMachine(pressure);
    const ProcessMemory process = ReadProcessMemory(options_.roots.proc);
    ReadLimits(process, pressure);
    std::ranges::stable_sort(pressure.rooms, {}, [](const MemoryRoom& r) { return r.left(); });
    for (const MemoryRoom& room : pressure.rooms) JudgeRoom(room, pressure);
    JudgeEvents(pressure);
    JudgeSwap(process, pressure);
    JudgeStalls(pressure);
    return pressure;
  }

 private:
  static void Raise(MemoryPressure& pressure, MemoryVerdict verdict, std::string source,
                    std::string reason) {
    if (verdict <= pressure.verdict) return;
    pressure.verdict = verdict;
    pressure.source = std::move(source);
    pressure.reason = std::move(reason);
  }

  void ReadCgroup(const std::string& directory, MemoryPressure& pressure) const {
    const std::string stat = ReadKernelFile(directory + "/memory.stat").value_or("");
    const auto add = [&](const std::string& source, std::optional<std::int64_t> limit,
                         std::optional<std::int64_t> used, std::int64_t droppable,
                         LimitEffect effect) {
      if (!limit || *limit < 0 || *limit >= kNoLimit || !used) return;
      pressure.rooms.push_back({.source = source,
                                .effect = effect,
                                .limit = Bytes(*limit),
                                .used = Bytes(std::max<std::int64_t>(*used - droppable, 0))});
    };
    if (const auto used = ReadInteger(directory + "/memory.current")) {  // version 2
      const std::int64_t droppable = NumberAfter(stat, "inactive_file ").value_or(0);
      add(directory + "/memory.max", ReadInteger(directory + "/memory.max"), used, droppable,
          LimitEffect::kKills);
      add(directory + "/memory.high", ReadInteger(directory + "/memory.high"), used, droppable,
          LimitEffect::kThrottles);
      return;
    }
    const std::int64_t droppable = NumberAfter(stat, "total_inactive_file ").value_or(0);
    const auto used = ReadInteger(directory + "/memory.usage_in_bytes");
    std::string source = directory + "/memory.limit_in_bytes";
    std::optional<std::int64_t> limit = ReadInteger(source);
    // Limits of parents that this process cannot see.
    const auto inherited = NumberAfter(stat, "hierarchical_memory_limit ");
    if (limit && inherited && *inherited > 0 && *inherited < *limit) {
      limit = inherited;
      source = directory + "/memory.stat (hierarchical_memory_limit)";
    }
    add(source, limit, used, droppable, LimitEffect::kKills);
  }

  void ReadMachine(MemoryPressure& pressure) const {
    const std::string path = options_.roots.proc + "/meminfo";
    const std::string text = ReadKernelFile(path).value_or("");
    const auto total = NumberAfter(text, "MemTotal:");
    const auto available = NumberAfter(text, "MemAvailable:");
    if (total && available && *total > 0) {
      pressure.rooms.push_back({.source = path + " (MemAvailable)",
                                .effect = LimitEffect::kKills,
                                .limit = KiB(*total),
                                .used = KiB(std::max<std::int64_t>(*total - *available, 0))});
    }
    const auto swap = NumberAfter(text, "SwapTotal:");
    const auto free = NumberAfter(text, "SwapFree:");
    if (swap && free && *swap > 0) pressure.swap_free = KiB(*free);
  }

  void ReadLimits(const ProcessMemory& process, MemoryPressure& pressure) const {
    const std::string path = options_.roots.proc + "/self/limits";
    const std::string limits = ReadKernelFile(path).value_or("");
    const auto add = [&](std::string_view name, std::optional<Bytes> used) {
      const auto limit = NumberAfter(limits, name);  // the soft one; "unlimited" is no number
      if (!limit || *limit < 0 || *limit >= kNoLimit || !used) return;
      pressure.rooms.push_back({.source = StrCat(path, " (", name, ")"),
                                .effect = LimitEffect::kRefuses,
                                .limit = Bytes(*limit),
                                .used = *used});
    };
    add("Max address space", process.address_space);
    add("Max data size", process.data);
  }

  void JudgeRoom(const MemoryRoom& room, MemoryPressure& pressure) const {
    const auto below = [&room](double part, Bytes bytes) {
      const double least = std::min(part * static_cast<double>(room.limit.value()),
                                    static_cast<double>(bytes.value()));
      return static_cast<double>(room.left().value()) < least;
    };
    MemoryVerdict verdict = MemoryVerdict::kOk;
    if (below(options_.tight_part, options_.tight_bytes)) verdict = MemoryVerdict::kTight;
    if (below(options_.at_risk_part, options_.at_risk_bytes) &&
        room.effect != LimitEffect::kThrottles)
      verdict = MemoryVerdict::kAtRisk;
    if (verdict == MemoryVerdict::kOk) return;
    const bool is_over = room.left().value() < 0;
    Raise(pressure, verdict, room.source,
          StrCat(room.source, ": the limit is ", BytesText(room.limit), " and ",
                 BytesText(room.used), " are used, ",
                 is_over ? std::string("more than it allows")
                         : StrCat(BytesText(room.left()), " are left"),
                 "; ", WhatHappens(room.effect)));
  }

  /// What the own cgroup has lived through. Those above it also count what happens to strangers.
  struct Events {
    std::optional<std::int64_t> kills;
    std::int64_t throttled = 0;  // passed memory.high
    std::string source;
  };
  Events ReadEvents() const {
    for (const std::string& directory : directories_) {
      for (const char* name : {"/memory.events", "/memory.oom_control"}) {
        const std::string text = ReadKernelFile(directory + name).value_or("");
        if (const auto kills = NumberAfter(text, "oom_kill "))
          return {kills, NumberAfter(text, "high ").value_or(0), directory + name};
      }
    }
    return {};
  }

  void JudgeEvents(MemoryPressure& pressure) {
    Events events = ReadEvents();
    const Events before = std::exchange(events_, events);
    if (!events.kills || !before.kills) return;
    const std::int64_t more = *events.kills - *before.kills;
    pressure.kills = kills_ += std::max<std::int64_t>(more, 0);
    if (more > 0) {
      Raise(pressure, MemoryVerdict::kAtRisk, events.source,
            StrCat(events.source, ": the kernel has killed ", more,
                   more == 1 ? " process" : " processes",
                   " of this cgroup for memory since the last look"));
    }
    if (events.throttled > before.throttled) {
      Raise(pressure, MemoryVerdict::kTight, events.source,
            StrCat(events.source,
                   ": processes of this cgroup were slowed down at memory.high since "
                   "the last look"));
    }
  }

  void JudgeSwap(const ProcessMemory& process, MemoryPressure& pressure) {
    pressure.swapped = process.swapped;
    const auto before = std::exchange(swapped_before_, process.swapped);
    if (!process.swapped || !before) return;
    const std::int64_t more = process.swapped->value() - before->value();
    if (more < options_.swapped_bytes.value()) return;
    Raise(pressure, MemoryVerdict::kTight, options_.roots.proc + "/self/status (VmSwap)",
          StrCat(BytesText(Bytes(more)), " of this process went to swap since the last look, ",
                 BytesText(*process.swapped), " in all: every touch of them waits for the disk"));
  }

  void JudgeStalls(MemoryPressure& pressure) const {
    std::string source;
    std::string text;
    for (const std::string& directory : directories_) {
      source = directory + "/memory.pressure";
      text = ReadKernelFile(source).value_or("");
      if (StalledPart(text, "some ")) break;
      text.clear();
    }
    if (text.empty()) {
      source = options_.roots.proc + "/pressure/memory";
      text = ReadKernelFile(source).value_or("");
    }
    pressure.some_stalled = StalledPart(text, "some ");
    pressure.full_stalled = StalledPart(text, "full ");
    const auto judge = [&](const std::optional<double>& part, MemoryVerdict verdict,
                           const char* who) {
      if (!part || *part < options_.stalled_part) return;
      Raise(pressure, verdict, source,
            StrCat(source, ": ", who, " stood still for memory in ", PercentText(*part),
                   " of the last 10 s"));
    };
    judge(pressure.full_stalled, MemoryVerdict::kAtRisk, "all tasks");
    judge(pressure.some_stalled, MemoryVerdict::kTight, "some task");
  }

  const MemoryPressureOptions options_;
  const std::vector<std::string> directories_;
  // At the last look.
  Events events_;
  std::optional<Bytes> swapped_before_;
  std::int64_t kills_ = 0;  // since the watch began
};

MemoryPressureWatch::MemoryPressureWatch(MemoryPressureOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
MemoryPressureWatch::MemoryPressureWatch(MemoryPressureWatch&&) noexcept = default;
MemoryPressureWatch& MemoryPressureWatch::operator=(MemoryPressureWatch&&) noexcept = default;
MemoryPressureWatch::~MemoryPressureWatch() = default;

MemoryPressure MemoryPressureWatch::Read() { return impl_->Read(); }

}  // namespace ait::inline v0

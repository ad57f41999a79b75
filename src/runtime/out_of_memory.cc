// SPDX-License-Identifier: Apache-2.0
#include "ait/runtime/out_of_memory.h"

#include <array>
#include <cstdio>

#include "ait/base/status.h"
#include "observe/memory_text_internal.h"
#include "runtime/memory_watch_internal.h"

namespace ait::inline v0 {
namespace {

using internal::BytesText;

constexpr std::size_t kLabelWidth = 10;

void AddLine(std::string& text, std::string_view label, std::string_view value) {
  text += "\n  ";
  text += label;
  if (label.size() < kLabelWidth) text.append(kLabelWidth - label.size(), ' ');
  text += value;
}

std::string_view EffectText(LimitEffect effect) {
  switch (effect) {
    case LimitEffect::kKills:
      return "the kernel kills at it";
    case LimitEffect::kThrottles:
      return "it slows down";
    case LimitEffect::kRefuses:
      return "allocations fail at it";
  }
  return "";
}

std::string RoomText(const MemoryRoom& room) {
  return StrCat(BytesText(room.used), " of ", BytesText(room.limit), " used, ",
                BytesText(room.left()), " left (", room.source, "; ", EffectText(room.effect), ")");
}

std::string ProcessText(const OutOfMemoryReport& report) {
  const ProcessMemory& process = report.process;
  std::string text = StrCat(BytesText(process.resident), " resident: ");
  if (report.split.live) {
    text += StrCat(BytesText(report.split.live), " live, ", BytesText(report.split.held),
                   " held by allocators or not counted, ");
  } else {
    text += StrCat(BytesText(process.anonymous), " anonymous (live part unknown), ");
  }
  text += StrCat(BytesText(report.split.file), " of files, ", BytesText(report.split.shared),
                 " shared; ", BytesText(process.swapped), " in swap");
  if (report.malloc) text += StrCat("; malloc keeps ", BytesText(report.malloc->held), " free");
  return text;
}

/// "forward 1.2 GiB, backward 1.4 GiB", and whether these are live bytes.
std::string PeaksText(const StepMemory& step) {
  const bool has_live = step.live.peak.has_value();
  std::string text;
  for (std::size_t i = 0; i < kMemoryPhaseCount; ++i) {
    const auto& peak = has_live ? step.phases[i].live.peak : step.phases[i].resident.peak;
    if (step.phases[i].times == 0 || !peak) continue;
    if (!text.empty()) text += ", ";
    text += StrCat(Name(static_cast<MemoryPhase>(i)), " ", BytesText(*peak));
  }
  if (text.empty()) return "";
  return StrCat(text, has_live ? " (live)" : " (resident)");
}

std::string ModelText(const MemoryBytes& bytes) {
  std::string text;
  const auto add = [&text](const char* what, std::int64_t size) {
    if (size == 0) return;
    if (!text.empty()) text += ", ";
    text += StrCat(what, " ", BytesText(Bytes(size)));
  };
  add("parameters", bytes.parameters);
  add("gradients", bytes.gradients);
  add("masters", bytes.masters);
  add("optimizer states", bytes.states);
  add("buckets", bytes.buckets);
  add("gathered units", bytes.gathered);
  return text;
}

std::string RemedyText(const Remedy& remedy, bool missing_is_known) {
  std::array<char, 64> factor{};
  std::snprintf(factor.data(), factor.size(), "step x %.2f", remedy.step_factor);
  std::string text = StrCat(remedy.what, ": saves ", BytesText(Bytes(remedy.saves_bytes)));
  if (missing_is_known) text += remedy.fits ? ", enough for this" : ", not enough alone";
  text += StrCat("; ", factor.data());
  if (!remedy.cost.empty()) text += StrCat("; ", remedy.cost);
  return text;
}

/// Whether the first budget says why there was no memory. It does not where a resource with a limit
/// of its own refused, whose error names it.
bool HasBudget(const OutOfMemoryReport& report) {
  if (report.failure == MemoryFailure::kDevice || report.budgets.empty()) return false;
  return !report.asked || internal::IsTooSmall(report.budgets.front(), *report.asked);
}

template <typename Item, typename Text>
void AddList(std::string& text, const char* label, const std::vector<Item>& items,
             const Text& text_of) {
  int number = 0;
  for (const Item& item : items) {
    ++number;
    AddLine(text, number == 1 ? label : "", StrCat(number, ". ", text_of(item)));
  }
}

void AddHolders(std::string& text, const OutOfMemoryReport& report) {
  if (!report.has_holders) {
    AddLine(text, "holders", "unknown: give TrainerOptions::memory.holders a TrackingResource");
  } else if (report.holders.empty()) {
    AddLine(text, "holders", "nobody holds memory of the resource that is tracked");
  }
  AddList(text, "holders", report.holders, [](const MemoryHolder& holder) {
    return StrCat(holder.label, ": ", BytesText(Bytes(holder.bytes)), " in ", holder.count,
                  holder.count == 1 ? " block" : " blocks");
  });
}

}  // namespace

bool internal::IsTooSmall(const MemoryRoom& room, Bytes asked) {
  constexpr std::int64_t kBeside = 64 << 10;
  return room.left().value() < asked.value() + asked.value() / 8 + kBeside;
}

std::string OutOfMemoryReport::Summary() const {
  std::string text(failure == MemoryFailure::kRisk     ? "nearly out of memory"
                   : failure == MemoryFailure::kDevice ? "out of device memory"
                                                       : "out of memory");
  if (phase) text += StrCat(" in ", Name(*phase));
  if (asked) text += StrCat(": ", BytesText(*asked), " asked");
  if (HasBudget(*this)) {
    text += StrCat(asked ? ", " : ": ", BytesText(budgets.front().left()), " left of ",
                   BytesText(budgets.front().limit), " (", budgets.front().source, ")");
  }
  return text;
}

std::string OutOfMemoryReport::Describe() const {
  std::string text = StrCat("rank ", rank, ", step ", step);
  if (micro_steps > 1) text += StrCat(", micro-batch ", micro_step, " of ", micro_steps);
  text += StrCat(": ", Summary(), ": ", reason);
  if (budgets.empty()) {
    AddLine(text, "budget", "unknown");
  } else {
    AddList(text, "budget", budgets, RoomText);
    if (!HasBudget(*this))
      AddLine(text, "", "none of these refused: the error above names what did");
  }
  AddLine(text, "process", ProcessText(*this));
  if (device.now) AddLine(text, "device", StrCat(BytesText(*device.now), " in use"));
  if (const std::string peaks = PeaksText(step_so_far); !peaks.empty())
    AddLine(text, "this step", StrCat("peaks so far: ", peaks));
  if (last_step) {
    if (const std::string peaks = PeaksText(*last_step); !peaks.empty())
      AddLine(text, "last step", StrCat("peaks: ", peaks));
  }
  if (const std::string states = ModelText(model.measured); !states.empty())
    AddLine(text, "model", states);
  AddHolders(text, *this);
  if (!growth.empty()) AddLine(text, "growth", growth);
  const bool grows = !growth.empty() && !remedies.empty();
  if (grows) AddLine(text, "try", "first end the growth: what follows only puts off the end");
  if (remedies.empty()) AddLine(text, "try", "a smaller model, more ranks or more memory");
  AddList(text, grows ? "" : "try", remedies,
          [this](const Remedy& remedy) { return RemedyText(remedy, missing.has_value()); });
  if (activations_are_unknown) {
    AddLine(
        text, "",
        "activations are unknown, so neither checkpointing nor smaller micro-batches are judged: "
        "give TrainerOptions::memory.live, device or segments");
  }
  if (missing && !remedies.empty()) {
    AddLine(text, "",
            StrCat("measured by the ", BytesText(*missing), " that were missing here",
                   segments_are_guessed ? "; activations as if in eight equal segments" : ""));
  }
  return text;
}

}  // namespace ait::inline v0

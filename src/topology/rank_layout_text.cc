// SPDX-License-Identifier: Apache-2.0
// A layout as text, and put to use.
#include <utility>

#include "ait/base/env.h"
#include "ait/topology/binding.h"
#include "ait/topology/memory_policy.h"
#include "ait/topology/rank_layout.h"
#include "topology/kernel_file_internal.h"

namespace ait::inline v0 {
namespace {

constexpr std::pair<const char*, CpuSet RankLayout::*> kSets[] = {
    {"cpus", &RankLayout::cpus},
    {"compute", &RankLayout::compute},
    {"communication", &RankLayout::communication},
    {"loaders", &RankLayout::loaders},
    {"nodes", &RankLayout::nodes},
};
constexpr std::pair<const char*, int RankLayout::*> kCounts[] = {
    {"threads", &RankLayout::threads},
    {"loader_threads", &RankLayout::loader_threads},
};
constexpr std::pair<const char*, std::optional<int> RankLayout::*> kIndices[] = {
    {"memory", &RankLayout::memory_node},
    {"gpu", &RankLayout::gpu},
};

/// One "name=value". **Errors.** InvalidArgument, without the name of the whole.
Status ReadWord(std::string_view name, std::string_view value, RankLayout& layout) {
  for (const auto& [known, member] : kSets) {
    if (name != known) continue;
    AIT_ASSIGN_OR_RETURN(layout.*member, IdSet::Parse(value));
    return OkStatus();
  }
  const auto number = internal::ParseNumber<int>(value);
  for (const auto& [known, member] : kCounts) {
    if (name != known) continue;
    if (!number || *number < 1) return InvalidArgumentError(name, " is at least 1, not ", value);
    layout.*member = *number;
    return OkStatus();
  }
  for (const auto& [known, member] : kIndices) {
    if (name != known) continue;
    if (!number || *number < 0) return InvalidArgumentError(name, " is at least 0, not ", value);
    layout.*member = *number;
    return OkStatus();
  }
  return InvalidArgumentError("\"", name, "\" is no part of it");
}

Status ReadWords(std::string_view text, RankLayout& layout) {
  for (const std::string_view word : internal::Split(text, ';')) {
    const std::size_t equals = word.find('=');
    if (equals == std::string_view::npos) {
      return InvalidArgumentError("\"", word, "\" is not name=value");
    }
    AIT_RETURN_IF_ERROR(ReadWord(word.substr(0, equals), word.substr(equals + 1), layout));
  }
  if (layout.cpus.empty()) return InvalidArgumentError("no CPUs");
  for (const auto& [name, member] : kSets) {
    if (member == &RankLayout::nodes) continue;
    const CpuSet& set = layout.*member;
    if (set.empty()) return InvalidArgumentError("no CPUs of ", name);
    if (const CpuSet more = set - layout.cpus; !more.empty()) {
      return InvalidArgumentError("CPUs ", more.ToString(), " of ", name,
                                  " are not among cpus=", layout.cpus.ToString());
    }
  }
  return OkStatus();
}

}  // namespace

std::string ToText(const RankLayout& layout) {
  std::string text;
  const auto add = [&text](std::string_view name, const auto& value) {
    text += StrCat(text.empty() ? "" : ";", name, "=", value);
  };
  for (const auto& [name, member] : kSets) add(name, (layout.*member).ToString());
  for (const auto& [name, member] : kCounts) add(name, layout.*member);
  for (const auto& [name, member] : kIndices) {
    if (const std::optional<int>& value = layout.*member) add(name, *value);
  }
  return text;
}

StatusOr<RankLayout> ParseRankLayout(std::string_view text) {
  RankLayout layout;
  if (const Status status = ReadWords(text, layout); !status.ok()) {
    return InvalidArgumentError("\"", text, "\" is not the layout of a rank: ", Message(status));
  }
  return layout;
}

StatusOr<std::optional<RankLayout>> RankLayoutFromEnv(const Env& env) {
  if (!env.ait_layout) return std::nullopt;
  StatusOr<RankLayout> layout = ParseRankLayout(*env.ait_layout);
  if (!layout.ok()) return Annotate(layout.status(), "AIT_LAYOUT");
  return std::optional<RankLayout>(*std::move(layout));
}

StatusOr<AppliedLayout> ApplyRankLayout(const RankLayout& layout) {
  AIT_RETURN_IF_ERROR(BindThisThread(layout.cpus));
  if (!layout.memory_node) {
    return AppliedLayout{
        .memory = layout.nodes.size() > 1
                      ? StrCat("first touch: its CPUs are on nodes ", layout.nodes.ToString())
                      : std::string("first touch: its node is unknown")};
  }
  const Status status = PreferMemoryOfNode(*layout.memory_node);
  if (!status.ok()) return AppliedLayout{.memory = StrCat("first touch: ", Message(status))};
  return AppliedLayout{.memory_preferred = true,
                       .memory = StrCat("preferred on node ", *layout.memory_node)};
}

}  // namespace ait::inline v0

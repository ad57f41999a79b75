// SPDX-License-Identifier: Apache-2.0
#include "ait/activation/policies.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "ait/activation/keep.h"
#include "ait/optim/parameter_groups.h"

namespace ait::inline v0 {
namespace {

constexpr std::string_view kUsage =
    "a policy is all, none, or rules such as blocks.*=recompute,blocks.*/3=offload,+products, with "
    "the actions keep, recompute and offload";

StatusOr<SegmentAction> ActionNamed(std::string_view name) {
  for (const SegmentAction action :
       {SegmentAction::kKeep, SegmentAction::kRecompute, SegmentAction::kOffload}) {
    if (Name(action) == name) return action;
  }
  return InvalidArgumentError("no action \"", name, "\": ", kUsage);
}

StatusOr<SegmentRule> ParseRule(std::string_view text) {
  const std::size_t equals = text.rfind('=');
  if (equals == std::string_view::npos || equals == 0) {
    return InvalidArgumentError("\"", text, "\" is no rule: ", kUsage);
  }
  SegmentRule rule;
  AIT_ASSIGN_OR_RETURN(rule.action, ActionNamed(text.substr(equals + 1)));
  std::string_view pattern = text.substr(0, equals);
  if (const std::size_t slash = pattern.rfind('/'); slash != std::string_view::npos) {
    const std::string_view every = pattern.substr(slash + 1);
    const auto [end, error] =
        std::from_chars(every.data(), every.data() + every.size(), rule.every);
    if (error != std::errc() || end != every.data() + every.size() || rule.every < 1) {
      return InvalidArgumentError("\"", every, "\" in \"", text,
                                  "\" is no number of 1 or more: ", kUsage);
    }
    pattern = pattern.substr(0, slash);
  }
  rule.pattern = pattern;
  return rule;
}

std::string Listed(std::span<const std::string> names) {
  constexpr std::size_t kMost = 8;
  std::string list;
  for (std::size_t i = 0; i < std::min(kMost, names.size()); ++i) {
    list += StrCat(i == 0 ? "" : ", ", names[i]);
  }
  if (names.size() > kMost) list += StrCat(" and ", names.size() - kMost, " more");
  return names.empty() ? "none" : list;
}

}  // namespace

CheckpointPolicy CheckpointPolicy::EveryKth(int k) {
  CheckpointPolicy policy;
  policy.Add({.every = k});
  return policy;
}

CheckpointPolicy CheckpointPolicy::Matching(std::string pattern) {
  CheckpointPolicy policy;
  policy.Add({.pattern = std::move(pattern)});
  return policy;
}

StatusOr<CheckpointPolicy> CheckpointPolicy::Parse(std::string_view text) {
  CheckpointPolicy policy;
  while (true) {
    const std::size_t comma = text.find(',');
    const std::string_view word = text.substr(0, comma);
    if (word == "all") {
      policy.Add({});
    } else if (word == "+products") {
      policy.KeepResults(MatrixProducts());
    } else if (word == "+attention") {
      policy.KeepResults(AttentionOperators());
    } else if (word != "none") {
      AIT_ASSIGN_OR_RETURN(SegmentRule rule, ParseRule(word));
      policy.Add(std::move(rule));
    }
    if (comma == std::string_view::npos) return policy;
    text.remove_prefix(comma + 1);
  }
}

CheckpointPolicy& CheckpointPolicy::Add(SegmentRule rule) {
  rules_.push_back(std::move(rule));
  return *this;
}

CheckpointPolicy& CheckpointPolicy::KeepResults(std::span<const std::string> operators) {
  for (const std::string& name : operators) {
    if (std::ranges::find(kept_results_, name) == kept_results_.end())
      kept_results_.push_back(name);
  }
  return *this;
}

CheckpointPolicy& CheckpointPolicy::KeepResults(const std::vector<std::string>& operators) {
  return KeepResults(std::span<const std::string>(operators));
}

StatusOr<std::vector<SegmentAction>> CheckpointPolicy::ActionsFor(
    std::span<const std::string> names) const {
  std::vector<SegmentAction> actions(names.size(), SegmentAction::kKeep);
  for (const SegmentRule& rule : rules_) {
    if (rule.every < 1) {
      return InvalidArgumentError("the rule for ", rule.pattern, " is for one segment in ",
                                  rule.every, "; give 1 or more");
    }
    int matched = 0;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (!MatchesPattern(rule.pattern, names[i])) continue;
      if (matched++ % rule.every == 0) actions[i] = rule.action;
    }
    if (matched == 0) {
      return NotFoundError("no segment matches ", rule.pattern, "; there are ", Listed(names));
    }
  }
  return actions;
}

StatusOr<std::unique_ptr<ActivationPlan>> CheckpointPolicy::MakePlan(
    std::span<const std::string> names, ActivationPlanOptions options) const {
  AIT_ASSIGN_OR_RETURN(const std::vector<SegmentAction> actions, ActionsFor(names));
  std::vector<std::string>& keep = options.keep;
  for (const std::string& name : kept_results_) {
    if (std::ranges::find(keep, name) == keep.end()) keep.push_back(name);
  }
  auto plan = std::make_unique<ActivationPlan>(std::move(options));
  for (std::size_t i = 0; i < names.size(); ++i) plan->Set(names[i], actions[i]);
  return plan;
}

}  // namespace ait::inline v0

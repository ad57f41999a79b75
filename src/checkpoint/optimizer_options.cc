// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <nlohmann/json.hpp>

#include "ait/optim/adafactor.h"
#include "ait/optim/adam.h"
#include "ait/optim/lamb.h"
#include "ait/optim/lion.h"
#include "ait/optim/muon.h"
#include "ait/optim/sgd.h"
#include "checkpoint/optimizer_options_internal.h"

namespace ait::inline v0::internal {
namespace {

using nlohmann::json;

// Of the whole optimizer, under torch's names where it has them. An optimizer that is not known
// here, such as a user's own, has its learning rate.
json OptionsOf(const Optimizer& optimizer) {
  json options = {{"lr", optimizer.learning_rate()}};
  const auto adam = [&](const auto& o) {
    options["betas"] = {o.beta1, o.beta2};
    options["eps"] = o.epsilon;
    options["weight_decay"] = o.weight_decay;
  };
  if (const auto* adamw = dynamic_cast<const AdamW*>(&optimizer)) {
    adam(adamw->options());
    options["amsgrad"] = adamw->options().variant == AdamVariant::kAmsgrad;
  }
  if (const auto* l2 = dynamic_cast<const Adam*>(&optimizer)) {
    adam(l2->options());
    options["amsgrad"] = l2->options().variant == AdamVariant::kAmsgrad;
  }
  if (const auto* lion = dynamic_cast<const Lion*>(&optimizer)) {
    options["betas"] = {lion->options().beta1, lion->options().beta2};
    options["weight_decay"] = lion->options().weight_decay;
  }
  if (const auto* lamb = dynamic_cast<const Lamb*>(&optimizer)) adam(lamb->options());
  if (const auto* sgd = dynamic_cast<const Sgd*>(&optimizer)) {
    options["momentum"] = sgd->options().momentum;
    options["dampening"] = sgd->options().dampening;
    options["nesterov"] = sgd->options().momentum_form == Momentum::kNesterov;
    options["weight_decay"] = sgd->options().weight_decay;
  }
  if (const auto* adafactor = dynamic_cast<const Adafactor*>(&optimizer)) {
    const AdafactorOptions& o = adafactor->options();
    options["beta2_decay"] = o.beta2_decay;
    options["eps"] = {o.epsilon1 ? json(*o.epsilon1) : json(nullptr), json(o.epsilon2)};
    options["d"] = o.clipping_threshold;
    options["weight_decay"] = o.weight_decay;
  }
  if (const auto* muon = dynamic_cast<const Muon*>(&optimizer)) {
    const MuonOptions& o = muon->options();
    options["momentum"] = o.momentum;
    options["nesterov"] = o.momentum_form == Momentum::kNesterov;
    options["eps"] = o.epsilon;
    options["ns_steps"] = o.steps;
    options["weight_decay"] = o.weight_decay;
  }
  return options;
}

}  // namespace

std::string ParamGroupsText(const Optimizer& optimizer,
                            const std::vector<ParameterSegment>& parameters) {
  const ParameterGroups& rules = optimizer.groups();
  const auto* muon = dynamic_cast<const Muon*>(&optimizer);
  // By the number of the rule, and whether Muon gives it to AdamW: torch has an optimizer for each.
  std::map<std::pair<std::size_t, bool>, json> groups;
  for (const ParameterSegment& parameter : parameters) {
    const auto found = GroupOf(rules, parameter);
    const std::size_t rule = found ? static_cast<std::size_t>(*found) : rules.size();
    const bool is_rest = muon != nullptr && !muon->IsMatrix(parameter);
    json& group = groups[{rule, is_rest}];
    if (group.is_null()) {
      group = is_rest ? OptionsOf(AdamW(muon->options().adamw)) : OptionsOf(optimizer);
      if (muon != nullptr) group["use_muon"] = !is_rest;
      if (rule < rules.size()) {
        group["name"] = rules[rule].name;
        if (rules[rule].learning_rate) group["lr"] = *rules[rule].learning_rate;
        if (rules[rule].weight_decay) group["weight_decay"] = *rules[rule].weight_decay;
      }
      group["params"] = json::array();
    }
    group["params"].push_back(parameter.name);
  }
  json list = json::array();
  for (auto& [key, group] : groups) list.push_back(std::move(group));
  return list.dump();
}

}  // namespace ait::inline v0::internal

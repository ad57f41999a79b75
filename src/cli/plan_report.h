// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CLI_PLAN_REPORT_H_
#define AIT_CLI_PLAN_REPORT_H_

// What `ait plan` answers, and how it prints that.

#include <string>
#include <vector>

#include "ait/activation/memory_model.h"
#include "cli/plan_setup.h"

namespace ait::cli {

struct PlanAnswer {
  struct Stage {
    int zero = 0;
    MemoryPrediction prediction;
    bool fits = true;  // or there is no budget
  };
  std::vector<Stage> stages;
  std::vector<Remedy> remedies;  // of the highest stage asked for, if none fits; cheapest first
  std::vector<Remedy> together;  // of them: changes that suffice together
  std::string no_remedy;         // why there are none

  bool fits() const;
};

StatusOr<PlanAnswer> Answer(const PlanQuestion& question);
std::string ToText(const PlanQuestion& question, const PlanAnswer& answer);
std::string ToJson(const PlanQuestion& question, const PlanAnswer& answer);

}  // namespace ait::cli

#endif  // AIT_CLI_PLAN_REPORT_H_

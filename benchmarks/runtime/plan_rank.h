// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_BENCHMARKS_RUNTIME_PLAN_RANK_H_
#define AIT_BENCHMARKS_RUNTIME_PLAN_RANK_H_

// What `bench plan` does as a rank of two: measures a step, or trains with a plan and tells what that
// took beside what was predicted before.

#include <nlohmann/json.hpp>
#include <string>

#include "ait/activation/planner.h"

namespace ait::benchmarks {

struct PlanModel {
  std::int64_t depth = 0, width = 0;
  std::string precision;  // as PrecisionNamed has it
};

nlohmann::json ToJson(const StepProfile& profile);
StepProfile ProfileFrom(const nlohmann::json& json);

/// **Collective.** Prints the profiles of two small micro-batches, on rank 0.
int RunProfileRank(const PlanModel& model);

/// **Collective.** Trains with a stage of ZeRO, `actions` for the blocks ("krk…": keep, recompute) and
/// prints, on every rank, {predicted, measured} by part. `activations` are those predicted.
int RunPlanRank(const PlanModel& model, int stage, std::int64_t micro_batch,
                const std::string& actions, std::int64_t activations);

}  // namespace ait::benchmarks

#endif  // AIT_BENCHMARKS_RUNTIME_PLAN_RANK_H_

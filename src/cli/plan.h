// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CLI_PLAN_H_
#define AIT_CLI_PLAN_H_

namespace ait::cli {

/// `ait plan`: how much memory a training run will take, by part, before it runs. argv[0] is "plan".
/// Returns the exit code: kFailure if a budget was given that no stage asked for keeps to.
int RunPlan(int argc, char** argv);

}  // namespace ait::cli

#endif  // AIT_CLI_PLAN_H_

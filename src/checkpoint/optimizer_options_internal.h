// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CHECKPOINT_OPTIMIZER_OPTIONS_INTERNAL_H_
#define AIT_CHECKPOINT_OPTIMIZER_OPTIONS_INTERNAL_H_

// The options of an optimizer as the `param_groups` of torch.optim.

#include <string>
#include <vector>

#include "ait/optim/optimizer.h"

namespace ait::inline v0::internal {

/// A JSON list, one entry for each group that has a parameter: "lr", "weight_decay", "betas",
/// "eps", "momentum" … as torch calls them, and "params", names in the order given.
std::string ParamGroupsText(const Optimizer& optimizer,
                            const std::vector<ParameterSegment>& parameters);

}  // namespace ait::inline v0::internal

#endif  // AIT_CHECKPOINT_OPTIMIZER_OPTIONS_INTERNAL_H_

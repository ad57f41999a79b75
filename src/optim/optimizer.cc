// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/optimizer.h"

namespace ait::inline v0 {

Status BoundOptimizer::VisitState(StateAccess,
                                  const std::function<Status(const StateSlice&)>& visit) {
  for (const StateSlice& slice : State()) AIT_RETURN_IF_ERROR(visit(slice));
  return OkStatus();
}

}  // namespace ait::inline v0

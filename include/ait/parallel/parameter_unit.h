// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_PARAMETER_UNIT_H_
#define AIT_PARALLEL_PARAMETER_UNIT_H_

// `ParameterUnit`: parameters that ZeRO-3 gathers and releases together, such as a transformer
// block.
//
//   {.units = {{"encoder", {"encoder.*"}}, {"head", {"head.weight", "head.bias"}}}}
//   {.units = UnitsUnder("blocks", NamedParameters(*model))}   // blocks.0, blocks.1, …

#include <string>
#include <string_view>
#include <vector>

#include "ait/base/status.h"
#include "ait/parallel/flat_layout.h"
#include "ait/parallel/named_tensor.h"

namespace ait::inline v0 {

struct ParameterUnit {
  std::string name;
  /// Over the names of parameters: `*` any text, `?` any one character.
  std::vector<std::string> patterns;
};

/// A unit for each module under `prefix`: of "blocks.0.up.weight" under "blocks" it is "blocks.0".
/// Empty if no name begins so.
std::vector<ParameterUnit> UnitsUnder(std::string_view prefix, const NamedTensors& parameters);

/// Writes to `parameters` which unit each belongs to: the first that matches. Tied parameters go by
/// their owner; parameters of at most `whole_up_to` elements get none.
/// **Errors.** InvalidArgument: a unit without a name or that matches nothing, two of the same
/// name, tied parameters of different units, which are named.
Status AssignUnits(const std::vector<ParameterUnit>& units, std::int64_t whole_up_to,
                   std::vector<ParameterInfo>& parameters);

}  // namespace ait::inline v0

#endif  // AIT_PARALLEL_PARAMETER_UNIT_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_PARAMETER_GROUPS_H_
#define AIT_OPTIM_PARAMETER_GROUPS_H_

// Parameter groups by rule: which parameters get other options than the rest.
//
// A group selects parameters by a pattern over their names and by their number of dimensions, and
// says which options differ. Groups are tried in order and the first that selects a parameter gets
// it; a parameter that none selects has the optimizer's own options. Rules instead of lists of
// tensors: the same groups hold on every rank and after a restart.
//
//   auto optimizer = ait::AdamW{{.learning_rate = 3e-4, .weight_decay = 0.1},
//       {{.name = "head", .pattern = "head.*", .learning_rate = 1e-3},
//        ait::NoDecayForNormsAndBiases()}};

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/status.h"
#include "ait/optim/parameter_layout.h"

namespace ait::inline v0 {

/// A rule and the options that differ for what it selects.
struct ParameterGroup {
  std::string name;           // for messages and reports
  std::string pattern = "*";  // over the whole name: `*` any text, `?` any one character
  int min_dimensions = 0;     // number of dimensions of the shape, both ends included
  int max_dimensions = std::numeric_limits<int>::max();

  std::optional<double> learning_rate;  // instead of the optimizer's; ≥ 0
  std::optional<double> weight_decay;   // instead of the optimizer's; ≥ 0

  /// True if the rule selects this parameter.
  bool Selects(const ParameterSegment& parameter) const;
};

using ParameterGroups = std::vector<ParameterGroup>;

/// The usual group: no weight decay for parameters of fewer than two dimensions, which are the
/// weights of normalisation layers and all biases.
ParameterGroup NoDecayForNormsAndBiases();

/// Index into `groups` of the first that selects the parameter; nullopt if none does.
std::optional<int> GroupOf(const ParameterGroups& groups, const ParameterSegment& parameter);

/// **Errors.** InvalidArgument that names the group: a negative or non-finite option, or
/// min_dimensions above max_dimensions.
Status Validate(const ParameterGroups& groups);

/// **Errors.** InvalidArgument that names the group and its pattern: it selects none of
/// `parameters`, which are all that the model has. A group whose pattern is "*" goes by dimensions
/// alone and may find none.
Status CheckSelection(const ParameterGroups& groups,
                      const std::vector<ParameterSegment>& parameters);

/// True if `text` as a whole matches `pattern`, in which `*` stands for any text, also none, and
/// `?` for any one character.
bool MatchesPattern(std::string_view pattern, std::string_view text);

}  // namespace ait::inline v0

#endif  // AIT_OPTIM_PARAMETER_GROUPS_H_

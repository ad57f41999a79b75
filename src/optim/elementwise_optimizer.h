// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_ELEMENTWISE_OPTIMIZER_H_
#define AIT_OPTIM_ELEMENTWISE_OPTIMIZER_H_

// What all optimizers share whose update of an element depends on that element alone: the cut of a
// slice into threads, groups and, where anything is not fp32, tiles that stay in the nearest cache.
// The arithmetic is an `ElementwiseRule`.

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ait/optim/optimizer.h"
#include "ait/optim/parameter_groups.h"
#include "optim/flat_optimizer.h"

namespace ait::inline v0::internal {

/// The options of a group after the group's own have replaced the optimizer's.
struct GroupRates {
  double learning_rate = 0;
  double weight_decay = 0;
};

/// Consecutive elements of one parameter, all fp32.
struct ElementRun {
  float* parameters;
  float* gradients;         // scaled by nobody yet; set to zero if `zero_gradients`
  std::byte* const* state;  // of each state array, see StateArray; null: the parameter has it not
  std::int64_t n;
  bool zero_gradients;

  float* floats(std::size_t i) const { return reinterpret_cast<float*>(state[i]); }
};

/// The arithmetic of an algorithm. Groups are counted from 0; the last is that of parameters in no
/// group.
class ElementwiseRule {
 public:
  virtual ~ElementwiseRule() = default;
  /// Computes the factors of every group for step `step` ≥ 1.
  virtual void BeginStep(std::int64_t step, const StepOptions& options) = 0;
  /// Updates a run of a group. Called by several threads.
  virtual void Update(int group, const ElementRun& run) const = 0;
};

/// Rates of every group, the optimizer's own last.
std::vector<GroupRates> RatesOf(const ParameterGroups& groups, GroupRates own);

/// `Optimizer::Describe`: name, state version, `options` and groups.
std::string DescribeOptimizer(const Optimizer& optimizer, std::string_view options);

/// InvalidArgument that names the optimizer, the option and its value unless least ≤ value < bound.
Status CheckOption(std::string_view optimizer, std::string_view option, double value, double least,
                   double bound);

/// Plain fp32 arrays of these names.
std::vector<StateArray> Float32Arrays(const std::vector<std::string>& names);

/// Binds a rule to a layout, see `Optimizer::Bind`.
StatusOr<std::unique_ptr<BoundOptimizer>> BindElementwise(const ParameterLayout& layout,
                                                          const ParameterGroups& groups,
                                                          BindOptions options,
                                                          std::vector<StateArray> arrays,
                                                          std::unique_ptr<ElementwiseRule> rule);

}  // namespace ait::inline v0::internal

#endif  // AIT_OPTIM_ELEMENTWISE_OPTIMIZER_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_LION_H_
#define AIT_OPTIM_LION_H_

// Lion (Chen et al., arXiv:2302.06675): every element moves by the learning rate, up or down. One
// moment, half the state of Adam; learning rates are 3 to 10 times smaller than Adam's, weight decay
// as many times larger.
//
// With gradient g = gradient_scale · gradient, learning rate η (of the group, times the schedule's
// factor) and weight decay λ:
//
//   p ← p · (1 − η λ) − η sign(β₁ exp_avg + (1 − β₁) g)
//   exp_avg ← β₂ exp_avg + (1 − β₂) g
//
//   auto optimizer = ait::Lion{{.learning_rate = 1e-4, .weight_decay = 0.3}};

#include "ait/optim/optimizer.h"
#include "ait/optim/parameter_groups.h"
#include "ait/optim/state_format.h"

namespace ait::inline v0 {

struct LionOptions {
  double learning_rate = 1e-4;  // η ≥ 0
  double beta1 = 0.9;           // 0 ≤ β₁ < 1
  double beta2 = 0.99;          // 0 ≤ β₂ < 1
  double weight_decay = 0;      // λ ≥ 0, decoupled from the gradient
  StateFormat state = StateFormat::kFloat32;
};

/// Lion. State: "exp_avg", 4 bytes a parameter, or 1.06 with 8 bits.
class Lion final : public Optimizer {
 public:
  using Options = LionOptions;
  explicit Lion(Options options = {}, ParameterGroups groups = {});

  StatusOr<std::unique_ptr<BoundOptimizer>> Bind(const ParameterLayout& layout,
                                                 BindOptions options = {}) const override;
  std::string_view name() const override { return "lion"; }
  int state_version() const override { return 1; }
  std::vector<std::string> state_names() const override;
  double learning_rate() const override { return options_.learning_rate; }
  const ParameterGroups& groups() const override { return groups_; }
  std::string Describe() const override;
  const Options& options() const { return options_; }

 private:
  Options options_;
  ParameterGroups groups_;
};

}  // namespace ait::inline v0

#endif  // AIT_OPTIM_LION_H_

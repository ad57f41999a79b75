// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_SGD_H_
#define AIT_OPTIM_SGD_H_

// Stochastic gradient descent with momentum (Polyak) or Nesterov momentum (Sutskever et al., ICML
// 2013), with the formulas and defaults of torch.optim.
//
// In step t = 1, 2, … with gradient g = gradient_scale · gradient, learning rate η (of the group,
// times the schedule's factor), weight decay λ, momentum μ and dampening τ:
//
//   g ← g + λ p
//   momentum_buffer ← g                                    if t = 1
//   momentum_buffer ← μ momentum_buffer + (1 − τ) g        otherwise
//   g ← g + μ momentum_buffer  (Nesterov)   or   g ← momentum_buffer
//   p ← p − η g
//
// Without momentum there is no state and the two lines of the buffer fall away.
//
//   auto optimizer = ait::Sgd{{.learning_rate = 0.1, .momentum = 0.9, .weight_decay = 5e-4}};

#include "ait/optim/optimizer.h"
#include "ait/optim/parameter_groups.h"

namespace ait::inline v0 {

enum class Momentum { kClassical, kNesterov };

struct SgdOptions {
  double learning_rate = 1e-3;                    // η ≥ 0
  double momentum = 0;                            // μ ≥ 0
  double dampening = 0;                           // τ; must be 0 with Nesterov momentum
  double weight_decay = 0;                        // λ ≥ 0, an L2 term of the loss
  Momentum momentum_form = Momentum::kClassical;  // Nesterov needs momentum > 0
};

/// SGD. State: "momentum_buffer", 4 bytes a parameter, if momentum is not 0; otherwise none.
class Sgd final : public Optimizer {
 public:
  using Options = SgdOptions;
  explicit Sgd(Options options = {}, ParameterGroups groups = {});

  StatusOr<std::unique_ptr<BoundOptimizer>> Bind(const ParameterLayout& layout,
                                                 BindOptions options = {}) const override;
  std::string_view name() const override { return "sgd"; }
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

#endif  // AIT_OPTIM_SGD_H_

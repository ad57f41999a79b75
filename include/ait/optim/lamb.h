// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_LAMB_H_
#define AIT_OPTIM_LAMB_H_

// LAMB (You et al., arXiv:1904.00962): Adam whose step is as long as a part of the parameter's own
// norm, for training with very large batches.
//
// In step t = 1, 2, … with gradient g = gradient_scale · gradient, learning rate η (of the group,
// times the schedule's factor) and weight decay λ, for each parameter p:
//
//   exp_avg    ← exp_avg + (1 − β₁) (g − exp_avg)
//   exp_avg_sq ← β₂ exp_avg_sq + (1 − β₂) g²
//   u = exp_avg / (1 − β₁ᵗ) / (√exp_avg_sq / √(1 − β₂ᵗ) + ε) + λ p
//   trust = min(max(‖p‖, least_norm), largest_norm) / ‖u‖, at most largest_trust;
//           1 where ‖p‖ or ‖u‖ is 0, and for parameters that are not adapted
//   p ← p − η · trust · u
//
// Norms are sums in double in an order that depends on the shape alone. They take the whole
// parameter: `Ownership::kWholeParameters`.
//
//   auto optimizer = ait::Lamb{{.learning_rate = 2e-3, .weight_decay = 0.01,
//                               .least_dimensions_adapted = 2}};      // not biases and norms

#include <limits>

#include "ait/optim/optimizer.h"
#include "ait/optim/parameter_groups.h"

namespace ait::inline v0 {

struct LambOptions {
  double learning_rate = 1e-3;  // η ≥ 0
  double beta1 = 0.9;           // 0 ≤ β₁ < 1
  double beta2 = 0.999;         // 0 ≤ β₂ < 1
  double epsilon = 1e-6;        // ε ≥ 0
  double weight_decay = 0.01;   // λ ≥ 0
  double least_norm = 0;        // of a parameter, as the trust ratio sees it; ≥ 0
  double largest_norm = std::numeric_limits<double>::infinity();   // ≥ least_norm
  double largest_trust = std::numeric_limits<double>::infinity();  // > 0; 1 is LAMB-C of timm
  /// Parameters of fewer dimensions have trust ratio 1: with 2, biases and norms.
  int least_dimensions_adapted = 0;
  /// Parameters whose names match one of these (`MatchesPattern`) have trust ratio 1.
  std::vector<std::string> not_adapted;
};

/// LAMB. State: "exp_avg" and "exp_avg_sq", 8 bytes a parameter.
class Lamb final : public Optimizer {
 public:
  using Options = LambOptions;
  explicit Lamb(Options options = {}, ParameterGroups groups = {});

  StatusOr<std::unique_ptr<BoundOptimizer>> Bind(const ParameterLayout& layout,
                                                 BindOptions options = {}) const override;
  Ownership ownership() const override { return Ownership::kWholeParameters; }
  std::string_view name() const override { return "lamb"; }
  int state_version() const override { return 1; }
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  double learning_rate() const override { return options_.learning_rate; }
  const ParameterGroups& groups() const override { return groups_; }
  std::string Describe() const override;
  const Options& options() const { return options_; }

 private:
  Options options_;
  ParameterGroups groups_;
};

}  // namespace ait::inline v0

#endif  // AIT_OPTIM_LAMB_H_

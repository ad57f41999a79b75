// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_ADAM_H_
#define AIT_OPTIM_ADAM_H_

// Adam (Kingma and Ba, arXiv:1412.6980) and AdamW (Loshchilov and Hutter, arXiv:1711.05101), with
// the formulas and defaults of torch.optim.
//
// In step t = 1, 2, … with gradient g = gradient_scale · gradient, learning rate η (of the group,
// times the schedule's factor) and weight decay λ:
//
//   AdamW:  p ← p · (1 − η λ)                Adam:  g ← g + λ p
//   exp_avg    ← exp_avg + (1 − β₁) (g − exp_avg)
//   exp_avg_sq ← β₂ exp_avg_sq + (1 − β₂) g²
//   p ← p − η / (1 − β₁ᵗ) · exp_avg / (√exp_avg_sq / √(1 − β₂ᵗ) + ε)
//
// With AMSGrad (Reddi et al., arXiv:1904.09237) the last line has max_exp_avg_sq, the largest
// exp_avg_sq so far, instead of exp_avg_sq.
//
// Everything is fp32; the factors of a step are computed in double and rounded once.
//
//   auto optimizer = ait::AdamW{{.learning_rate = 3e-4, .weight_decay = 0.1}};
//   auto grouped = ait::AdamW{{.weight_decay = 0.1}, {ait::NoDecayForNormsAndBiases()}};

#include "ait/optim/optimizer.h"
#include "ait/optim/parameter_groups.h"
#include "ait/optim/state_format.h"

namespace ait::inline v0 {

enum class AdamVariant { kPlain, kAmsgrad };

struct AdamWOptions {
  double learning_rate = 1e-3;  // η ≥ 0
  double beta1 = 0.9;           // 0 ≤ β₁ < 1
  double beta2 = 0.999;         // 0 ≤ β₂ < 1
  double epsilon = 1e-8;        // ε ≥ 0
  double weight_decay = 1e-2;   // λ ≥ 0, decoupled from the gradient
  AdamVariant variant = AdamVariant::kPlain;
  StateFormat state = StateFormat::kFloat32;  // AMSGrad needs fp32
};

struct AdamOptions {
  double learning_rate = 1e-3;  // η ≥ 0
  double beta1 = 0.9;           // 0 ≤ β₁ < 1
  double beta2 = 0.999;         // 0 ≤ β₂ < 1
  double epsilon = 1e-8;        // ε ≥ 0
  double weight_decay = 0;      // λ ≥ 0, an L2 term of the loss: added to the gradient
  AdamVariant variant = AdamVariant::kPlain;
  StateFormat state = StateFormat::kFloat32;  // AMSGrad needs fp32
};

/// Adam with decoupled weight decay. State: "exp_avg" and "exp_avg_sq", 8 bytes a parameter, or 2.1
/// with 8 bits; AMSGrad: also "max_exp_avg_sq", 12 bytes.
class AdamW final : public Optimizer {
 public:
  using Options = AdamWOptions;
  explicit AdamW(Options options = {}, ParameterGroups groups = {});

  StatusOr<std::unique_ptr<BoundOptimizer>> Bind(const ParameterLayout& layout,
                                                 BindOptions options = {}) const override;
  std::string_view name() const override { return "adamw"; }
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

/// Adam with weight decay as an L2 term. State as that of AdamW.
class Adam final : public Optimizer {
 public:
  using Options = AdamOptions;
  explicit Adam(Options options = {}, ParameterGroups groups = {});

  StatusOr<std::unique_ptr<BoundOptimizer>> Bind(const ParameterLayout& layout,
                                                 BindOptions options = {}) const override;
  std::string_view name() const override { return "adam"; }
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

#endif  // AIT_OPTIM_ADAM_H_

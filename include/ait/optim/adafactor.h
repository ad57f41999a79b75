// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_ADAFACTOR_H_
#define AIT_OPTIM_ADAFACTOR_H_

// Adafactor (Shazeer and Stern, arXiv:1804.04235): second moments of a matrix kept as one number
// for each row and one for each column, n + m instead of n · m; steps relative to the size of the
// parameter. Two rules that differ in much but the idea:
//
//   AdafactorRule::kTorch, torch.optim.Adafactor          AdafactorRule::kT5x, of T5X
//   β₂ₜ = 1 − t^beta2_decay                                the same
//   factors the last two dimensions of any parameter       factors the two largest dimensions, if
//     of two or more                                         both have at least least_factored
//   row, col: moving averages of mean g²                   of mean (g² + ε₁)
//   v̂ = row col / max(mean row, ε₁), at least ε₁²          v̂ = row col / mean row
//   u = g / √v̂,  û = u / max(1, RMS(u) / d)                the same
//   α = max(ε₂, RMS(p)) · min(η, 1 / √t)                   α = max(ε₂, RMS(p)) · η, or α = η with
//                                                            StepSize::kAbsolute
//   p ← p (1 − η λ) − α û                                  m ← β₁ m + (1 − β₁) α û where β₁ > 0;
//                                                            p ← p (1 − η λ) − (m or α û)
//
// g = gradient_scale · gradient; η is the rate of the group, times the schedule's factor. ε₁ is 2⁻²³
// by default for kTorch, the fp32 epsilon, and 10⁻³⁰ for kT5x. T5X leaves the weight decay without
// η unless told (`weight_decay_rate_lr_exponent`); here it is always η λ.
//
// Parameters that are not factored, such as vectors, have a second moment for each element. The
// matrices are those of the model, although the buffer is flat, so owners need whole parameters:
// `Ownership::kWholeParameters`. Means and norms are sums in double, in an order that depends on
// the shape alone. T5X's rules for stacked layers (FactorDim) are not here: a stacked weight is
// factored as any other parameter.
//
//   auto optimizer = ait::Adafactor{{.learning_rate = 1e-2}};
//   auto t5x = ait::Adafactor{{.rule = ait::AdafactorRule::kT5x, .learning_rate = 1e-3}};

#include <optional>

#include "ait/optim/optimizer.h"
#include "ait/optim/parameter_groups.h"

namespace ait::inline v0 {

enum class AdafactorRule : std::uint8_t { kTorch, kT5x };

/// What the learning rate is multiplied by: the size of the parameter, or nothing.
enum class StepSize : std::uint8_t { kRelative, kAbsolute };

struct AdafactorOptions {
  AdafactorRule rule = AdafactorRule::kTorch;
  double learning_rate = 1e-2;          // η ≥ 0
  double beta2_decay = -0.8;            // ≤ 0
  std::optional<double> epsilon1;       // ε₁ ≥ 0; unset: of the rule
  double epsilon2 = 1e-3;               // ε₂ ≥ 0: the least size of a parameter
  double clipping_threshold = 1;        // d > 0; d ≥ 1 for kTorch
  double weight_decay = 0;              // λ ≥ 0
  double beta1 = 0;                     // 0 ≤ β₁ < 1; 0 keeps no momentum; kT5x alone
  std::int64_t least_factored = 128;    // ≥ 1; kT5x alone
  StepSize step = StepSize::kRelative;  // kAbsolute: kT5x alone
};

/// Adafactor. State: "row_var" and "col_var" of a factored parameter, shaped as it is but for one
/// dimension that is 1; "variance" of others; "exp_avg" where β₁ > 0.
class Adafactor final : public Optimizer {
 public:
  using Options = AdafactorOptions;
  explicit Adafactor(Options options = {}, ParameterGroups groups = {});

  StatusOr<std::unique_ptr<BoundOptimizer>> Bind(const ParameterLayout& layout,
                                                 BindOptions options = {}) const override;
  Ownership ownership() const override { return Ownership::kWholeParameters; }
  std::string_view name() const override { return "adafactor"; }
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

#endif  // AIT_OPTIM_ADAFACTOR_H_

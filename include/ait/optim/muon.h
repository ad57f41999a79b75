// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_MUON_H_
#define AIT_OPTIM_MUON_H_

// Muon (Jordan et al., https://kellerjordan.github.io/posts/muon): momentum made orthogonal, for
// the matrices of a model, and AdamW for all else, in one optimizer.
//
// A parameter of two dimensions, [rows, columns], is a matrix, unless one of `adamw_parameters`
// matches its name: embeddings and output heads should be named there. For a matrix p, with
// gradient g = gradient_scale · gradient, learning rate η (of the group, times the schedule's
// factor), weight decay λ and momentum μ, as in torch.optim.Muon:
//
//   momentum_buffer ← μ momentum_buffer + (1 − μ) g
//   u = μ momentum_buffer + (1 − μ) g  (Nesterov)   or   u = momentum_buffer
//   X = u / max(‖u‖, ε), transposed where rows > columns; five times (`steps`):
//     A = X Xᵀ;  X ← a X + (b A + c A²) X,   (a, b, c) = (3.4445, −4.7750, 2.0315)
//   p ← p (1 − η λ) − η · adjustment · X
//
//   Adjustment::kOriginal      √max(1, rows / columns)
//   Adjustment::kMatchAdamW    0.2 √max(rows, columns): the size of AdamW's steps, so that its
//                              learning rates fit (Liu et al., arXiv:2502.16982)
//
// The products are of this library, in fp32 with fused multiply-add: the same bits for any thread
// count and SIMD level. They need the whole matrix: `Ownership::kWholeParameters`.
//
//   auto optimizer = ait::Muon{{.learning_rate = 0.02, .weight_decay = 0.01,
//                               .adamw_parameters = {"wte*", "head*"},
//                               .adamw = {.learning_rate = 3e-4}}};

#include "ait/optim/adam.h"
#include "ait/optim/optimizer.h"
#include "ait/optim/parameter_groups.h"
#include "ait/optim/sgd.h"

namespace ait::inline v0 {

enum class Adjustment : std::uint8_t { kOriginal, kMatchAdamW };

/// What becomes of parameters of more than two dimensions, such as the weights of convolutions.
enum class HigherDimensions : std::uint8_t {
  kAdamW,
  kFlattened,  // the matrix [first dimension, all others]
};

struct MuonOptions {
  double learning_rate = 1e-3;  // η ≥ 0, of matrices
  double weight_decay = 0.1;    // λ ≥ 0, of matrices
  double momentum = 0.95;       // 0 ≤ μ < 1
  Momentum momentum_form = Momentum::kNesterov;
  double epsilon = 1e-7;  // ε > 0
  int steps = 5;          // of the iteration, 1 to 99
  Adjustment adjustment = Adjustment::kOriginal;
  HigherDimensions higher_dimensions = HigherDimensions::kAdamW;
  /// Matrices whose names match one of these (`MatchesPattern`) are AdamW's.
  std::vector<std::string> adamw_parameters;
  /// Of what is no matrix. Groups replace its options as they do those of Muon.
  AdamWOptions adamw = {};
};

/// Muon and AdamW. State: "momentum_buffer" of matrices, 4 bytes an element; of all else that of
/// AdamW.
class Muon final : public Optimizer {
 public:
  using Options = MuonOptions;
  explicit Muon(Options options = {}, ParameterGroups groups = {});

  StatusOr<std::unique_ptr<BoundOptimizer>> Bind(const ParameterLayout& layout,
                                                 BindOptions options = {}) const override;
  Ownership ownership() const override { return Ownership::kWholeParameters; }
  std::string_view name() const override { return "muon"; }
  int state_version() const override { return 1; }
  std::vector<std::string> state_names() const override;
  double learning_rate() const override { return options_.learning_rate; }
  const ParameterGroups& groups() const override { return groups_; }
  std::string Describe() const override;
  const Options& options() const { return options_; }

  /// True if the parameter is a matrix to this optimizer, false if it is AdamW's.
  bool IsMatrix(const ParameterSegment& parameter) const;

 private:
  Options options_;
  ParameterGroups groups_;
};

}  // namespace ait::inline v0

#endif  // AIT_OPTIM_MUON_H_

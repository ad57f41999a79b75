// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/adam.h"

#include <cmath>
#include <limits>
#include <utility>

#include "optim/blockwise_state.h"
#include "optim/elementwise_optimizer.h"
#include "optim/kernels.h"

namespace ait::inline v0 {
namespace {

using internal::AdamFactors;
using internal::CheckOption;
using internal::GroupRates;
using internal::Kernels;

enum class Decay { kDecoupled, kL2 };

class AdamRule final : public internal::ElementwiseRule {
 public:
  template <typename Options>
  AdamRule(const Options& options, Decay decay, std::vector<GroupRates> rates,
           const Kernels& kernels)
      : beta1_(options.beta1),
        beta2_(options.beta2),
        epsilon_(options.epsilon),
        variant_(options.variant),
        decay_(decay),
        rates_(std::move(rates)),
        factors_(rates_.size()),
        kernels_(kernels) {}

  void BeginStep(std::int64_t step, const StepOptions& options) override {
    const double t = static_cast<double>(step);
    const double bias1 = 1 - std::pow(beta1_, t);
    const double bias2 = 1 - std::pow(beta2_, t);
    for (std::size_t i = 0; i < rates_.size(); ++i) {
      const double rate = rates_[i].learning_rate * options.learning_rate_factor;
      const double weight_decay = rates_[i].weight_decay;
      factors_[i] = {
          .gradient_scale = static_cast<float>(options.gradient_scale),
          .l2 = decay_ == Decay::kL2 ? static_cast<float>(weight_decay) : 0.0f,
          .decay = decay_ == Decay::kL2 ? 1.0f : static_cast<float>(1 - rate * weight_decay),
          .one_minus_beta1 = static_cast<float>(1 - beta1_),
          .beta2 = static_cast<float>(beta2_),
          .one_minus_beta2 = static_cast<float>(1 - beta2_),
          .epsilon = static_cast<float>(epsilon_ * std::sqrt(bias2)),
          .step_size = static_cast<float>(rate * std::sqrt(bias2) / bias1),
      };
    }
  }

  void Update(int group, const internal::ElementRun& run) const override {
    const AdamFactors& factors = factors_[static_cast<std::size_t>(group)];
    if (run.state[0] == nullptr) {
      return kernels_.adam_8bit(run.parameters, run.gradients, internal::Moment8bitAt(run, 2),
                                internal::Moment8bitAt(run, 4), run.n, factors, run.zero_gradients);
    }
    kernels_.adam(run.parameters, run.gradients, run.floats(0), run.floats(1),
                  variant_ == AdamVariant::kAmsgrad ? run.floats(2) : nullptr, run.n, factors,
                  run.zero_gradients);
  }

 private:
  double beta1_;
  double beta2_;
  double epsilon_;
  AdamVariant variant_;
  Decay decay_;
  std::vector<GroupRates> rates_;
  std::vector<AdamFactors> factors_;
  const Kernels& kernels_;
};

std::vector<std::string> MomentNames(AdamVariant variant) {
  if (variant == AdamVariant::kPlain) return {"exp_avg", "exp_avg_sq"};
  return {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
}

// Both algorithms have the same options; only their defaults differ.
template <typename Options>
StatusOr<std::unique_ptr<BoundOptimizer>> BindAdam(const Optimizer& optimizer, const Options& o,
                                                   Decay decay, const ParameterGroups& groups,
                                                   const ParameterLayout& layout,
                                                   BindOptions bind) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  AIT_RETURN_IF_ERROR(
      CheckOption(optimizer.name(), "learning_rate", o.learning_rate, 0, kInfinity));
  AIT_RETURN_IF_ERROR(CheckOption(optimizer.name(), "beta1", o.beta1, 0, 1));
  AIT_RETURN_IF_ERROR(CheckOption(optimizer.name(), "beta2", o.beta2, 0, 1));
  AIT_RETURN_IF_ERROR(CheckOption(optimizer.name(), "epsilon", o.epsilon, 0, kInfinity));
  AIT_RETURN_IF_ERROR(CheckOption(optimizer.name(), "weight_decay", o.weight_decay, 0, kInfinity));
  if (o.variant == AdamVariant::kAmsgrad && o.state != StateFormat::kFloat32) {
    return InvalidArgumentError(optimizer.name(),
                                ": AMSGrad with state in 8 bits; its largest second moment would "
                                "not be kept, use StateFormat::kFloat32");
  }
  auto rule = std::make_unique<AdamRule>(
      o, decay,
      internal::RatesOf(groups, {.learning_rate = o.learning_rate, .weight_decay = o.weight_decay}),
      internal::KernelsFor(bind.max_simd_level));
  return internal::BindElementwise(layout, groups, std::move(bind),
                                   internal::ArraysOf(MomentNames(o.variant), o.state),
                                   std::move(rule));
}

template <typename Options>
std::string DescribeAdam(const Optimizer& optimizer, const Options& o) {
  return internal::DescribeOptimizer(
      optimizer,
      StrCat("learning_rate ", o.learning_rate, " beta1 ", o.beta1, " beta2 ", o.beta2, " epsilon ",
             o.epsilon, " weight_decay ", o.weight_decay,
             o.variant == AdamVariant::kAmsgrad ? " amsgrad" : "", internal::Describe(o.state)));
}

}  // namespace

std::string AdamW::Describe() const { return DescribeAdam(*this, options_); }
std::string Adam::Describe() const { return DescribeAdam(*this, options_); }

std::vector<std::string> AdamW::state_names() const {
  return internal::StateNames(MomentNames(options_.variant), options_.state);
}
std::vector<std::string> Adam::state_names() const {
  return internal::StateNames(MomentNames(options_.variant), options_.state);
}

AdamW::AdamW(Options options, ParameterGroups groups)
    : options_(options), groups_(std::move(groups)) {}

StatusOr<std::unique_ptr<BoundOptimizer>> AdamW::Bind(const ParameterLayout& layout,
                                                      BindOptions options) const {
  return BindAdam(*this, options_, Decay::kDecoupled, groups_, layout, std::move(options));
}

Adam::Adam(Options options, ParameterGroups groups)
    : options_(options), groups_(std::move(groups)) {}

StatusOr<std::unique_ptr<BoundOptimizer>> Adam::Bind(const ParameterLayout& layout,
                                                     BindOptions options) const {
  return BindAdam(*this, options_, Decay::kL2, groups_, layout, std::move(options));
}

}  // namespace ait::inline v0

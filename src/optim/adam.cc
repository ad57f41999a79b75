// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/adam.h"

#include <cmath>
#include <utility>

#include "optim/adam_factors.h"
#include "optim/blockwise_state.h"
#include "optim/elementwise_optimizer.h"
#include "optim/kernels.h"

namespace ait::inline v0 {

internal::AdamFactors internal::AdamFactorsOf(const AdamNumbers& numbers, std::int64_t step,
                                              const GroupRates& rates, const StepOptions& options) {
  const double t = static_cast<double>(step);
  const double bias1 = 1 - std::pow(numbers.beta1, t);
  const double root_bias2 = std::sqrt(1 - std::pow(numbers.beta2, t));
  const double rate = rates.learning_rate * options.learning_rate_factor;
  const bool l2 = numbers.decay == Decay::kL2;
  return {
      .gradient_scale = static_cast<float>(options.gradient_scale),
      .l2 = l2 ? static_cast<float>(rates.weight_decay) : 0.0f,
      .decay = l2 ? 1.0f : static_cast<float>(1 - rate * rates.weight_decay),
      .one_minus_beta1 = static_cast<float>(1 - numbers.beta1),
      .beta2 = static_cast<float>(numbers.beta2),
      .one_minus_beta2 = static_cast<float>(1 - numbers.beta2),
      .epsilon = static_cast<float>(numbers.epsilon * root_bias2),
      .step_size = static_cast<float>(rate * root_bias2 / bias1),
  };
}

namespace {

using internal::AdamFactors;
using internal::AdamNumbers;
using internal::Decay;
using internal::GroupRates;
using internal::Kernels;

class AdamRule final : public internal::ElementwiseRule {
 public:
  template <typename Options>
  AdamRule(const Options& options, Decay decay, std::vector<GroupRates> rates,
           const Kernels& kernels)
      : numbers_{options.beta1, options.beta2, options.epsilon, decay},
        variant_(options.variant),
        rates_(std::move(rates)),
        factors_(rates_.size()),
        kernels_(kernels) {}

  void BeginStep(std::int64_t step, const StepOptions& options) override {
    for (std::size_t i = 0; i < rates_.size(); ++i) {
      factors_[i] = internal::AdamFactorsOf(numbers_, step, rates_[i], options);
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
  AdamNumbers numbers_;
  AdamVariant variant_;
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
  AIT_RETURN_IF_ERROR(internal::CheckAdamOptions(optimizer.name(), o));
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

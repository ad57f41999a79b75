// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/sgd.h"

#include <limits>
#include <utility>

#include "optim/elementwise_optimizer.h"
#include "optim/kernels.h"

namespace ait::inline v0 {
namespace {

using internal::CheckOption;
using internal::GroupRates;
using internal::Kernels;
using internal::SgdFactors;
using internal::SgdForm;

class SgdRule final : public internal::ElementwiseRule {
 public:
  SgdRule(const SgdOptions& options, std::vector<GroupRates> rates, const Kernels& kernels)
      : options_(options), rates_(std::move(rates)), factors_(rates_.size()), kernels_(kernels) {
    if (options.momentum != 0) {
      form_ =
          options.momentum_form == Momentum::kNesterov ? SgdForm::kNesterov : SgdForm::kClassical;
    }
  }

  void BeginStep(std::int64_t step, const StepOptions& options) override {
    for (std::size_t i = 0; i < rates_.size(); ++i) {
      factors_[i] = {
          .gradient_scale = static_cast<float>(options.gradient_scale),
          .l2 = static_cast<float>(rates_[i].weight_decay),
          .learning_rate =
              static_cast<float>(rates_[i].learning_rate * options.learning_rate_factor),
          .momentum = step == 1 ? 0.0f : static_cast<float>(options_.momentum),
          .new_gradient = step == 1 ? 1.0f : static_cast<float>(1 - options_.dampening),
          .nesterov = static_cast<float>(options_.momentum),
      };
    }
  }

  void Update(int group, const internal::ElementRun& run) const override {
    kernels_.sgd(run.parameters, run.gradients, run.floats(0), run.n,
                 factors_[static_cast<std::size_t>(group)], form_, run.zero_gradients);
  }

 private:
  SgdOptions options_;
  SgdForm form_ = SgdForm::kPlain;
  std::vector<GroupRates> rates_;
  std::vector<SgdFactors> factors_;
  const Kernels& kernels_;
};

}  // namespace

Sgd::Sgd(Options options, ParameterGroups groups) : options_(options), groups_(std::move(groups)) {}

std::vector<std::string> Sgd::state_names() const {
  if (options_.momentum == 0) return {};
  return {"momentum_buffer"};
}

std::string Sgd::Describe() const {
  return internal::DescribeOptimizer(
      *this, StrCat("learning_rate ", options_.learning_rate, " momentum ", options_.momentum,
                    " dampening ", options_.dampening, " weight_decay ", options_.weight_decay,
                    options_.momentum_form == Momentum::kNesterov ? " nesterov" : " classical"));
}

StatusOr<std::unique_ptr<BoundOptimizer>> Sgd::Bind(const ParameterLayout& layout,
                                                    BindOptions options) const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  AIT_RETURN_IF_ERROR(CheckOption(name(), "learning_rate", options_.learning_rate, 0, kInfinity));
  AIT_RETURN_IF_ERROR(CheckOption(name(), "momentum", options_.momentum, 0, kInfinity));
  AIT_RETURN_IF_ERROR(CheckOption(name(), "dampening", options_.dampening, -kInfinity, kInfinity));
  AIT_RETURN_IF_ERROR(CheckOption(name(), "weight_decay", options_.weight_decay, 0, kInfinity));
  if (options_.momentum_form == Momentum::kNesterov &&
      (options_.momentum == 0 || options_.dampening != 0)) {
    return InvalidArgumentError("sgd: Nesterov momentum with momentum ", options_.momentum,
                                " and dampening ", options_.dampening,
                                "; it needs a momentum above 0 and no dampening");
  }
  auto rule =
      std::make_unique<SgdRule>(options_,
                                internal::RatesOf(groups_, {.learning_rate = options_.learning_rate,
                                                            .weight_decay = options_.weight_decay}),
                                internal::KernelsFor(options.max_simd_level));
  return internal::BindElementwise(layout, groups_, std::move(options),
                                   internal::Float32Arrays(state_names()), std::move(rule));
}

}  // namespace ait::inline v0

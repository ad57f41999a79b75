// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/lion.h"

#include <limits>
#include <utility>

#include "optim/blockwise_state.h"
#include "optim/elementwise_optimizer.h"
#include "optim/kernels.h"

namespace ait::inline v0 {
namespace {

using internal::CheckOption;
using internal::GroupRates;
using internal::Kernels;
using internal::LionFactors;

constexpr const char* kMoment = "exp_avg";

class LionRule final : public internal::ElementwiseRule {
 public:
  LionRule(const LionOptions& options, std::vector<GroupRates> rates, const Kernels& kernels)
      : options_(options), rates_(std::move(rates)), factors_(rates_.size()), kernels_(kernels) {}

  void BeginStep(std::int64_t /*step*/, const StepOptions& options) override {
    for (std::size_t i = 0; i < rates_.size(); ++i) {
      const double rate = rates_[i].learning_rate * options.learning_rate_factor;
      factors_[i] = {
          .gradient_scale = static_cast<float>(options.gradient_scale),
          .decay = static_cast<float>(1 - rate * rates_[i].weight_decay),
          .learning_rate = static_cast<float>(rate),
          .beta1 = static_cast<float>(options_.beta1),
          .one_minus_beta1 = static_cast<float>(1 - options_.beta1),
          .beta2 = static_cast<float>(options_.beta2),
          .one_minus_beta2 = static_cast<float>(1 - options_.beta2),
      };
    }
  }

  void Update(int group, const internal::ElementRun& run) const override {
    const LionFactors& factors = factors_[static_cast<std::size_t>(group)];
    if (run.state[0] == nullptr) {
      return kernels_.lion_8bit(run.parameters, run.gradients, internal::Moment8bitAt(run, 1),
                                run.n, factors, run.zero_gradients);
    }
    kernels_.lion(run.parameters, run.gradients, run.floats(0), run.n, factors, run.zero_gradients);
  }

 private:
  LionOptions options_;
  std::vector<GroupRates> rates_;
  std::vector<LionFactors> factors_;
  const Kernels& kernels_;
};

}  // namespace

Lion::Lion(Options options, ParameterGroups groups)
    : options_(options), groups_(std::move(groups)) {}

std::vector<std::string> Lion::state_names() const {
  return internal::StateNames({kMoment}, options_.state);
}

std::string Lion::Describe() const {
  return internal::DescribeOptimizer(
      *this, StrCat("learning_rate ", options_.learning_rate, " beta1 ", options_.beta1, " beta2 ",
                    options_.beta2, " weight_decay ", options_.weight_decay,
                    internal::Describe(options_.state)));
}

StatusOr<std::unique_ptr<BoundOptimizer>> Lion::Bind(const ParameterLayout& layout,
                                                     BindOptions options) const {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  AIT_RETURN_IF_ERROR(CheckOption(name(), "learning_rate", options_.learning_rate, 0, kInfinity));
  AIT_RETURN_IF_ERROR(CheckOption(name(), "beta1", options_.beta1, 0, 1));
  AIT_RETURN_IF_ERROR(CheckOption(name(), "beta2", options_.beta2, 0, 1));
  AIT_RETURN_IF_ERROR(CheckOption(name(), "weight_decay", options_.weight_decay, 0, kInfinity));
  auto rule = std::make_unique<LionRule>(
      options_,
      internal::RatesOf(groups_, {.learning_rate = options_.learning_rate,
                                  .weight_decay = options_.weight_decay}),
      internal::KernelsFor(options.max_simd_level));
  return internal::BindElementwise(layout, groups_, std::move(options),
                                   internal::ArraysOf({kMoment}, options_.state), std::move(rule));
}

}  // namespace ait::inline v0

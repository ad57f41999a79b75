// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/lamb.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "optim/elementwise_optimizer.h"
#include "optim/whole_kernels.h"
#include "optim/whole_parameter_optimizer.h"

namespace ait::inline v0 {
namespace {

using internal::GroupRates;
using internal::LambFactors;
using internal::WholeKernels;
using internal::WholeParameter;

class LambRule final : public internal::WholeParameterRule {
 public:
  LambRule(LambOptions options, std::vector<GroupRates> rates, const WholeKernels& kernels)
      : options_(std::move(options)),
        rates_(std::move(rates)),
        factors_(rates_.size()),
        steps_(rates_.size()),
        kernels_(kernels) {}

  std::vector<internal::ShapedArray> StateOf(const ParameterSegment& parameter) const override {
    return {{"exp_avg", parameter.shape}, {"exp_avg_sq", parameter.shape}};
  }

  void BeginStep(std::int64_t step, const StepOptions& options) override {
    const double t = static_cast<double>(step);
    for (std::size_t i = 0; i < rates_.size(); ++i) {
      steps_[i] = rates_[i].learning_rate * options.learning_rate_factor;
      factors_[i] = {
          .gradient_scale = static_cast<float>(options.gradient_scale),
          .one_minus_beta1 = static_cast<float>(1 - options_.beta1),
          .beta2 = static_cast<float>(options_.beta2),
          .one_minus_beta2 = static_cast<float>(1 - options_.beta2),
          .inverse_bias1 = static_cast<float>(1 / (1 - std::pow(options_.beta1, t))),
          .inverse_root_bias2 = static_cast<float>(1 / std::sqrt(1 - std::pow(options_.beta2, t))),
          .epsilon = static_cast<float>(options_.epsilon),
          .weight_decay = static_cast<float>(rates_[i].weight_decay),
      };
    }
  }

  void Update(const WholeParameter& parameter) const override {
    const std::int64_t count = parameter.segment.size();
    const LambFactors& factors = factors_[static_cast<std::size_t>(parameter.group)];
    float* const exp_avg = parameter.state[0];
    float* const exp_avg_sq = parameter.state[1];
    std::vector<double> sums(static_cast<std::size_t>(2 * internal::ChunksOf(count)), 0.0);
    internal::ForEachChunk(parameter.executor, count, [&](std::int64_t begin, std::int64_t size) {
      kernels_.lamb_moments(parameter.values + begin, parameter.gradients + begin, exp_avg + begin,
                            exp_avg_sq + begin, size, factors,
                            &sums[static_cast<std::size_t>(2 * (begin / internal::kChunk))]);
    });
    double of_parameters = 0, of_update = 0;
    for (std::size_t i = 0; i < sums.size(); i += 2) {
      of_parameters += sums[i];
      of_update += sums[i + 1];
    }
    const auto step = static_cast<float>(
        steps_[static_cast<std::size_t>(parameter.group)] *
        Trust(parameter.segment, std::sqrt(of_parameters), std::sqrt(of_update)));
    internal::ForEachChunk(parameter.executor, count, [&](std::int64_t begin, std::int64_t size) {
      kernels_.lamb_apply(parameter.values + begin, exp_avg + begin, exp_avg_sq + begin, size,
                          factors, step);
    });
  }

 private:
  double Trust(const ParameterSegment& parameter, double norm, double update_norm) const {
    const auto matches = [&](const std::string& pattern) {
      return MatchesPattern(pattern, parameter.name);
    };
    const bool is_adapted =
        static_cast<int>(parameter.shape.size()) >= options_.least_dimensions_adapted &&
        std::ranges::none_of(options_.not_adapted, matches);
    if (!is_adapted || norm == 0 || update_norm == 0) return 1;
    const double seen = std::min(std::max(norm, options_.least_norm), options_.largest_norm);
    return std::min(seen / update_norm, options_.largest_trust);
  }

  LambOptions options_;
  std::vector<GroupRates> rates_;
  std::vector<LambFactors> factors_;
  std::vector<double> steps_;
  const WholeKernels& kernels_;
};

}  // namespace

Lamb::Lamb(Options options, ParameterGroups groups)
    : options_(std::move(options)), groups_(std::move(groups)) {}

StatusOr<std::unique_ptr<BoundOptimizer>> Lamb::Bind(const ParameterLayout& layout,
                                                     BindOptions options) const {
  using internal::CheckOption;
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const Options& o = options_;
  AIT_RETURN_IF_ERROR(CheckOption(name(), "learning_rate", o.learning_rate, 0, kInfinity));
  AIT_RETURN_IF_ERROR(CheckOption(name(), "beta1", o.beta1, 0, 1));
  AIT_RETURN_IF_ERROR(CheckOption(name(), "beta2", o.beta2, 0, 1));
  AIT_RETURN_IF_ERROR(CheckOption(name(), "epsilon", o.epsilon, 0, kInfinity));
  AIT_RETURN_IF_ERROR(CheckOption(name(), "weight_decay", o.weight_decay, 0, kInfinity));
  AIT_RETURN_IF_ERROR(CheckOption(name(), "least_norm", o.least_norm, 0, kInfinity));
  if (!(o.largest_norm >= o.least_norm)) {
    return InvalidArgumentError("lamb: largest_norm is ", o.largest_norm,
                                "; it must be at least least_norm, ", o.least_norm);
  }
  if (!(o.largest_trust > 0)) {
    return InvalidArgumentError("lamb: largest_trust is ", o.largest_trust, "; it must be above 0");
  }
  auto rule = std::make_unique<LambRule>(
      o,
      internal::RatesOf(groups_,
                        {.learning_rate = o.learning_rate, .weight_decay = o.weight_decay}),
      internal::WholeKernelsFor(options.max_simd_level));
  return internal::BindWholeParameters(layout, groups_, std::move(options), std::move(rule));
}

std::string Lamb::Describe() const {
  const Options& o = options_;
  std::string text =
      StrCat("learning_rate ", o.learning_rate, " beta1 ", o.beta1, " beta2 ", o.beta2, " epsilon ",
             o.epsilon, " weight_decay ", o.weight_decay, " least_norm ", o.least_norm,
             " largest_norm ", o.largest_norm, " largest_trust ", o.largest_trust,
             " least_dimensions_adapted ", o.least_dimensions_adapted);
  for (const std::string& pattern : o.not_adapted)
    text += StrCat(" not_adapted ", pattern.size(), ":", pattern);
  return internal::DescribeOptimizer(*this, text);
}

}  // namespace ait::inline v0

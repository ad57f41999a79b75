// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_ADAM_FACTORS_H_
#define AIT_OPTIM_ADAM_FACTORS_H_

// The numbers of a step of Adam, which the kernels of the processor and of a GPU share.

#include <cstdint>
#include <limits>
#include <string_view>

#include "ait/base/status.h"
#include "optim/elementwise_optimizer.h"
#include "optim/kernels.h"

namespace ait::inline v0::internal {

enum class Decay { kDecoupled, kL2 };

/// What is the same in all steps.
struct AdamNumbers {
  double beta1;
  double beta2;
  double epsilon;
  Decay decay;
};

/// Computed in double and rounded once.
AdamFactors AdamFactorsOf(const AdamNumbers& numbers, std::int64_t step, const GroupRates& rates,
                          const StepOptions& options);

/// Of AdamWOptions or AdamOptions.
template <typename Options>
Status CheckAdamOptions(std::string_view name, const Options& o) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  AIT_RETURN_IF_ERROR(CheckOption(name, "learning_rate", o.learning_rate, 0, kInfinity));
  AIT_RETURN_IF_ERROR(CheckOption(name, "beta1", o.beta1, 0, 1));
  AIT_RETURN_IF_ERROR(CheckOption(name, "beta2", o.beta2, 0, 1));
  AIT_RETURN_IF_ERROR(CheckOption(name, "epsilon", o.epsilon, 0, kInfinity));
  return CheckOption(name, "weight_decay", o.weight_decay, 0, kInfinity);
}

}  // namespace ait::inline v0::internal

#endif  // AIT_OPTIM_ADAM_FACTORS_H_

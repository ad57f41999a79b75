// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_EXAMPLES_05_PRECISION_MODES_H_
#define AIT_EXAMPLES_05_PRECISION_MODES_H_

// The precisions that the table compares.

#include <optional>
#include <string>
#include <vector>

#include "ait/base/dtype.h"
#include "ait/optim/loss_scaler.h"
#include "ait/optim/precision.h"

struct Mode {
  std::string name;
  ait::Precision precision;
  std::optional<ait::DType> autocast = {};
  std::optional<ait::LossScalerOptions> loss_scaler = {};
};

inline std::vector<Mode> Modes() {
  using ait::Masters;
  using ait::Precision;
  return {{"fp32", Precision::Float32()},
          {"bf16 autocast", Precision::Float32(), ait::DType::kBFloat16},
          {"bf16 + fp32 master", Precision::Bf16()},
          {"bf16 + remainder", Precision::Bf16(Masters::kRemainder)},
          {"bf16 + Kahan", Precision::Bf16(Masters::kKahan)},
          {"bf16 stochastic", Precision::Bf16(Masters::kStochastic, 1)},
          {"bf16 pure", Precision::Bf16(Masters::kNone)},
          {"fp16 + fp32 master", Precision::Fp16(), {}, ait::LossScalerOptions()}};
}

#endif  // AIT_EXAMPLES_05_PRECISION_MODES_H_

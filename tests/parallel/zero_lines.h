// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_PARALLEL_ZERO_LINES_H_
#define AIT_TESTS_PARALLEL_ZERO_LINES_H_

// What ranks that are processes print to be compared: the bits of every kind of sharded training.

#include <functional>
#include <memory>
#include <string>

#include "ait/optim/adam.h"
#include "parallel/zero_training.h"

namespace ait::testing {

/// "fp32 once 0 14695981039346656037": precision, when gradients are reduced, stage, and a hash of
/// the parameters and of the norms of all steps.
inline std::string ZeroLines(const std::shared_ptr<Communicator>& communicator) {
  const AdamW adamw({.learning_rate = 1e-2});
  std::string lines;
  for (const char* precision : {"fp32", "bf16"}) {
    for (const ReduceWhen reduce : {ReduceWhen::kOnce, ReduceWhen::kEachMicroStep}) {
      for (const ZeroStage stage : {ZeroStage::kNone, ZeroStage::kOptimizer, ZeroStage::kGradients,
                                    ZeroStage::kParameters}) {
        ZeroRun run{.options = {.zero_stage = stage,
                                .precision = *PrecisionNamed(precision),
                                .reduce = reduce,
                                .first_bucket = Bytes(256),
                                .bucket_cap = Bytes(2000)},
                    .optimizer = &adamw,
                    .steps = 12,
                    .micro_steps = 2};
        const ZeroResult result = TrainZero(communicator, run);
        std::string bits;
        for (const auto& [name, bytes] : result.bytes) {
          if (name.find('/') == std::string::npos) bits += bytes;
        }
        for (const double norm : result.norms) bits += StrCat(norm, " ");
        lines += StrCat(precision, reduce == ReduceWhen::kOnce ? " once " : " each ",
                        static_cast<int>(stage), " ", std::hash<std::string>()(bits), "\n");
      }
    }
  }
  return lines;
}

}  // namespace ait::testing

#endif  // AIT_TESTS_PARALLEL_ZERO_LINES_H_

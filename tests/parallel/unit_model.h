// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_PARALLEL_UNIT_MODEL_H_
#define AIT_TESTS_PARALLEL_UNIT_MODEL_H_

// A model of units with everything that makes gathering hard: parameters in no unit, tied, frozen,
// unused, empty and of odd sizes; a unit inside of another, one that is called twice, one that some
// ranks leave out; results of several tensors; and activation checkpointing.

#include <ATen/core/ivalue.h>
// Keep the order.
#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <vector>

#include "ait/parallel/data_parallel.h"

namespace ait::testing {

struct UnitModel {
  static constexpr int kBlocks = 3;
  static constexpr std::int64_t kWidth = 12;
  static constexpr std::int64_t kVocabulary = 17;

  explicit UnitModel(int seed);

  struct Options {
    bool share = true;        // blocks call the unit of the first one inside
    bool skip_side = false;   // the side unit is not called
    bool checkpoint = false;  // blocks are computed again in backward
  };
  /// Sum of cross-entropies of predicting `targets` from `tokens`, both [n].
  at::Tensor Loss(DataParallel& engine, const at::Tensor& tokens, const at::Tensor& targets,
                  const Options& options) const;
  at::Tensor Loss(DataParallel& engine, const at::Tensor& tokens, const at::Tensor& targets) const {
    return Loss(engine, tokens, targets, Options());
  }

  NamedTensors Parameters() const;
  /// {{"embedding", …}, {"blocks.0", …}, …, {"side", …}}.
  static std::vector<ParameterUnit> Units();

  struct Block {
    at::Tensor norm, up, up_bias, down, frozen, unused, empty;
  };
  at::Tensor embedding, position, side;  // position is in no unit; the head is the embedding
  std::vector<Block> blocks;

 private:
  at::Tensor RunBlock(DataParallel& engine, int i, const at::Tensor& x, bool share) const;
};

/// Runs `function` on `x` without a graph, and again with one in backward: what activation
/// checkpointing does, with none of its care.
at::Tensor Checkpointed(const std::function<at::Tensor(const at::Tensor&)>& function,
                        const at::Tensor& x);

}  // namespace ait::testing

#endif  // AIT_TESTS_PARALLEL_UNIT_MODEL_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_PARALLEL_TINY_MODEL_H_
#define AIT_TESTS_PARALLEL_TINY_MODEL_H_

// A model of a few hundred parameters with everything that makes data parallelism hard: an
// embedding tied to the head, a LayerNorm, a 0-d parameter, one that is used twice, one that is
// frozen, one that is never used. And `RunRanks`, which plays a world in threads.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ait/comm/thread_group.h"
#include "ait/parallel/data_parallel.h"
#include "tensor/torch_internal.h"

namespace ait::testing {

/// Deterministic values in (-scale, scale); the same for the same seed, on any thread.
at::Tensor Values(at::IntArrayRef sizes, int seed, double scale = 0.3);

/// A leaf with such values that requires a gradient.
at::Tensor Leaf(at::IntArrayRef sizes, int seed, double scale = 0.3);

struct TinyModel {
  static constexpr std::int64_t kVocabulary = 17;
  static constexpr std::int64_t kWidth = 12;

  explicit TinyModel(int seed = 1);

  /// Sum of cross-entropies of predicting `targets` from `tokens`, both [n].
  at::Tensor Loss(const at::Tensor& tokens, const at::Tensor& targets) const;

  /// All parameters in registration order; the head is the embedding.
  NamedTensors Parameters() const;

  at::Tensor embedding, norm_weight, norm_bias, up, up_bias, down, down_bias, frozen, unused, scale;
};

/// `count` tokens of the vocabulary.
at::Tensor Tokens(std::int64_t count, int seed);

/// The values of all tensors, concatenated: what is compared bit for bit.
std::vector<float> Flatten(const NamedTensors& tensors);

/// Runs `rank_main` for every rank of a new group, each in a thread of its own, and waits for all.
void RunRanks(int ranks, const std::function<void(std::shared_ptr<Communicator>)>& rank_main,
              std::chrono::milliseconds timeout = std::chrono::seconds(30));

/// A group of one rank.
std::shared_ptr<Communicator> Alone();

}  // namespace ait::testing

#endif  // AIT_TESTS_PARALLEL_TINY_MODEL_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_RUNTIME_TOY_MODEL_H_
#define AIT_TESTS_RUNTIME_TOY_MODEL_H_

// The smallest language model: an embedding and an output layer, and a rig that runs ranks as
// threads.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ait/base/status.h"
#include "ait/comm/communicator.h"
#include "ait/parallel/data_parallel.h"
#include "ait/runtime/trainer.h"
#include "ait/tensor/torch.h"

namespace ait::testing {

/// Tokens and the tokens that follow them.
struct ToyBatch {
  std::vector<std::int64_t> inputs;
  std::vector<std::int64_t> targets;
};

/// A batch of `size` tokens that is a function of `seed`.
ToyBatch MakeBatch(int seed, int size);
/// The tokens of one batch, then those of the other.
ToyBatch Join(const ToyBatch& a, const ToyBatch& b);

/// What a loss function does instead of the plain loss.
enum class Fault { kNone, kNanLoss, kNanGradient, kThrow, kVector, kNoGraph };

class ToyModel {
 public:
  static constexpr std::int64_t kVocabulary = 11;
  static constexpr std::int64_t kWidth = 6;
  ToyModel();

  /// Sum of the cross-entropies of a batch.
  LossSum Loss(const ToyBatch& batch, Fault fault = Fault::kNone) const;
  NamedTensors Parameters() const;
  /// All values, one after the other.
  std::vector<float> Values() const;

 private:
  at::Tensor embedding_, output_;
};

/// One rank: communicator, model and engine.
struct ToyRank {
  explicit ToyRank(std::shared_ptr<Communicator> communicator, DataParallelOptions options = {});
  int rank() const { return engine->communicator()->rank().value(); }

  ToyModel model;
  std::unique_ptr<DataParallel> engine;
};

/// Runs `body` on `size` ranks, each a thread, and waits for them. `adjust` may change the options of
/// a rank, such as its groups of hybrid sharding.
void RunRanks(int size, const std::function<void(ToyRank&)>& body,
              const DataParallelOptions& options = {},
              const std::function<void(Communicator&, DataParallelOptions&)>& adjust = nullptr);

}  // namespace ait::testing

#endif  // AIT_TESTS_RUNTIME_TOY_MODEL_H_

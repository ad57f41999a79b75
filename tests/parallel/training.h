// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_PARALLEL_TRAINING_H_
#define AIT_TESTS_PARALLEL_TRAINING_H_

// A short training that tells where it is: the same for ranks that are threads and ranks that are
// processes, so that their results can be compared and one of them can be stopped at a chosen
// point.

#include <functional>
#include <memory>
#include <string>

#include "ait/optim/adam.h"
#include "ait/optim/norm.h"
#include "parallel/tiny_model.h"

namespace ait::testing {

enum class Phase { kForward, kBackward, kCollective, kStep };

/// Trains TinyModel and a parameter of 16 MiB, whose reduction takes a while. Calls `at` in every
/// step: before forward, within backward, when the last buckets are in flight, and before the
/// update. Returns the sum of all parameters' bits, as text.
inline StatusOr<std::string> TrainTiny(const std::shared_ptr<Communicator>& communicator, int steps,
                                       const std::function<void(int step, Phase phase)>& at) {
  const int rank = communicator->rank().value();
  TinyModel model(1 + rank);
  const at::Tensor large = Leaf({1 << 22}, 5);
  NamedTensors parameters;
  parameters.Add("large", large);
  const NamedTensors tiny = model.Parameters();
  for (std::size_t i = 0; i < tiny.size(); ++i) parameters.Add(tiny.name(i), tiny.tensor(i));
  AIT_ASSIGN_OR_RETURN(
      auto engine, DataParallel::Create(communicator, parameters, {.first_bucket = Bytes(2000)}));
  AIT_RETURN_IF_ERROR(engine->SetOptimizer(AdamW{{.learning_rate = 1e-2}}));
  int step = 0;
  model.up.register_hook([&](const at::Tensor& gradient) {
    at(step, Phase::kBackward);
    return gradient;
  });
  for (step = 1; step <= steps; ++step) {
    AIT_RETURN_IF_ERROR(engine->BeginMicroStep(MicroStep::kLast));
    at(step, Phase::kForward);
    const at::Tensor tokens = Tokens(6, 100 * step + rank);
    const at::Tensor loss =
        model.Loss(tokens, tokens.add(1).remainder(TinyModel::kVocabulary)).add(large.sum());
    AIT_RETURN_IF_ERROR(engine->Backward(loss));
    at(step, Phase::kCollective);
    AIT_ASSIGN_OR_RETURN(const GradientSummary sum, engine->FinishGradients({.count = 6}));
    at(step, Phase::kStep);
    AIT_RETURN_IF_ERROR(engine->Update(
        {.gradient_scale = ClipFactor(sum.norm, 1.0) / static_cast<double>(sum.count)}));
  }
  std::uint64_t bits = 0;
  for (const float value : Flatten(parameters)) {
    bits = bits * 31 + std::bit_cast<std::uint32_t>(value);
  }
  return StrCat(bits);
}

}  // namespace ait::testing

#endif  // AIT_TESTS_PARALLEL_TRAINING_H_

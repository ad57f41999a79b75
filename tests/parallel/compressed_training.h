// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_PARALLEL_COMPRESSED_TRAINING_H_
#define AIT_TESTS_PARALLEL_COMPRESSED_TRAINING_H_

// A short training with compressed gradients, the same for ranks that are threads and ranks that
// are processes. One parameter is so large that its bucket travels in several pieces.

#include <bit>
#include <memory>
#include <string>
#include <utility>

#include "ait/optim/adam.h"
#include "ait/parallel/compression.h"
#include "parallel/tiny_model.h"

namespace ait::testing {

/// Trains by the compression of this name; returns a hash of the bits of all parameters, as text.
inline StatusOr<std::string> TrainCompressed(const std::shared_ptr<Communicator>& communicator,
                                             std::string_view method, int steps) {
  const int rank = communicator->rank().value();
  TinyModel model(1 + rank);
  const at::Tensor large = Leaf({1100, 1201}, 5);
  NamedTensors parameters;
  parameters.Add("large", large);
  const NamedTensors tiny = model.Parameters();
  for (std::size_t i = 0; i < tiny.size(); ++i) parameters.Add(tiny.name(i), tiny.tensor(i));
  DataParallelOptions options{.first_bucket = Bytes(2000)};
  if (method == "powersgd") {
    options.compression = PowerSgdCompression({.rank = 2, .start_step = 1, .min_ratio = 1});
  } else {
    AIT_ASSIGN_OR_RETURN(options.compression, CompressionNamed(method));
  }
  AIT_ASSIGN_OR_RETURN(auto engine,
                       DataParallel::Create(communicator, parameters, std::move(options)));
  AIT_RETURN_IF_ERROR(engine->SetOptimizer(AdamW{{.learning_rate = 1e-2}}));
  for (int step = 1; step <= steps; ++step) {
    AIT_RETURN_IF_ERROR(engine->BeginMicroStep(MicroStep::kLast));
    const at::Tensor tokens = Tokens(6, 100 * step + rank);
    const at::Tensor loss = model.Loss(tokens, tokens.add(1).remainder(TinyModel::kVocabulary))
                                .add(large.mul(Values(large.sizes(), 100 * step + rank, 1)).sum());
    AIT_RETURN_IF_ERROR(engine->Backward(loss));
    AIT_RETURN_IF_ERROR(engine->FinishGradients({.count = 6}).status());
    AIT_RETURN_IF_ERROR(engine->Update({}));
  }
  std::uint64_t bits = 0;
  for (const float value : Flatten(parameters)) {
    bits = bits * 31 + std::bit_cast<std::uint32_t>(value);
  }
  return StrCat(bits);
}

}  // namespace ait::testing

#endif  // AIT_TESTS_PARALLEL_COMPRESSED_TRAINING_H_

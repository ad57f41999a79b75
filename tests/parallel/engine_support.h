// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_PARALLEL_ENGINE_SUPPORT_H_
#define AIT_TESTS_PARALLEL_ENGINE_SUPPORT_H_

// Short forms for tests of DataParallel on a handful of tensors.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ait/parallel/data_parallel.h"
#include "support/status_matchers.h"
#include "tensor/torch_internal.h"

namespace ait::testing {

inline NamedTensors List(const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  NamedTensors list;
  for (const auto& [name, tensor] : tensors) list.Add(name, tensor);
  return list;
}

inline std::unique_ptr<DataParallel> Engine(const std::shared_ptr<Communicator>& communicator,
                                            const NamedTensors& parameters,
                                            DataParallelOptions options = {}) {
  auto engine = DataParallel::Create(communicator, parameters, std::move(options));
  EXPECT_OK(engine);
  return engine.ok() ? *std::move(engine) : nullptr;
}

// One last micro-step from a loss.
inline Status Reduce(DataParallel& engine, const at::Tensor& loss) {
  AIT_RETURN_IF_ERROR(engine.BeginMicroStep(MicroStep::kLast));
  AIT_RETURN_IF_ERROR(engine.Backward(loss));
  return engine.FinishGradients({}).status();
}

inline float First(const at::Tensor& tensor) { return tensor.reshape({-1})[0].item<float>(); }

}  // namespace ait::testing

#endif  // AIT_TESTS_PARALLEL_ENGINE_SUPPORT_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_MODULE_H_
#define AIT_PARALLEL_MODULE_H_

// The parameters and buffers of a torch::nn::Module as `NamedTensors`.
//
// **Price.** This header includes <torch/nn/module.h>, about 12 CPU-seconds a file. A file that
// defines a model has paid it already; others pass `NamedTensors` on and need only
// ait/parallel/named_tensor.h.
//
//   auto engine = DataParallel::Create(world->communicator(), NamedParameters(*model));

#include <torch/nn/module.h>

#include "ait/parallel/named_tensor.h"

namespace ait::inline v0 {

/// All parameters, also frozen ones, of the module and its submodules, in registration order. A
/// tensor that is registered several times (tied weights) is listed under each of its names.
inline NamedTensors NamedParameters(const torch::nn::Module& module) {
  NamedTensors list;
  for (const auto& item : module.named_parameters()) list.Add(item.key(), item.value());
  return list;
}

/// All buffers, such as the running statistics of a BatchNorm.
inline NamedTensors NamedBuffers(const torch::nn::Module& module) {
  NamedTensors list;
  for (const auto& item : module.named_buffers()) list.Add(item.key(), item.value());
  return list;
}

}  // namespace ait::inline v0

#endif  // AIT_PARALLEL_MODULE_H_

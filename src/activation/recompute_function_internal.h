// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_ACTIVATION_RECOMPUTE_FUNCTION_INTERNAL_H_
#define AIT_ACTIVATION_RECOMPUTE_FUNCTION_INTERNAL_H_

// Segments where saved tensors cannot be handed to us: one torch::autograd::Function, whose inputs
// are those of the segment and the parameters that it uses.
//
// Forward runs the function with its graph, once, to find the parameters in it, and drops the
// graph. Backward runs it again and asks autograd for the gradients of just those tensors, so that
// the hooks of a parameter are called once, with the sum of all its gradients.

#include <memory>
#include <vector>

#include "activation/segment_internal.h"

namespace ait::inline v0::internal {

/// Runs `first` with the inputs of `replay`; its results, made anew. `inputs` are the same with
/// their graph.
std::vector<at::Tensor> RunAsFunction(const std::shared_ptr<SegmentReplay>& replay,
                                      const std::vector<at::Tensor>& inputs,
                                      const CheckpointCall::Function& first);

}  // namespace ait::inline v0::internal

#endif  // AIT_ACTIVATION_RECOMPUTE_FUNCTION_INTERNAL_H_

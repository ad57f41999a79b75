// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_ACTIVATION_SAVE_BY_INTERNAL_H_
#define AIT_ACTIVATION_SAVE_BY_INTERNAL_H_

#include <memory>

#include "ait/activation/saved_tensors.h"
#include "tensor/torch_internal.h"

namespace ait::inline v0::internal {

/// Asks `policy` about a tensor that it may be asked about; null if the tensor is to be kept as it
/// is. `detached` is the tensor without its graph.
std::unique_ptr<SavedTensor> SaveBy(SavedTensorPolicy& policy, const at::Tensor& tensor,
                                    const at::Tensor& detached);

}  // namespace ait::inline v0::internal

#endif  // AIT_ACTIVATION_SAVE_BY_INTERNAL_H_

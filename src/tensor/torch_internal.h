// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TENSOR_TORCH_INTERNAL_H_
#define AIT_TENSOR_TORCH_INTERNAL_H_

// The way libtorch comes into our sources: include this first, then single ATen/ops/*.h.
//
// It puts ATen/core/ivalue.h before everything else: with C++20, clang finds IValue incomplete in
// other orders. It costs about 2.5 CPU-seconds; ATen/ATen.h would cost 8, torch/torch.h 15.

#include <ATen/core/ivalue.h>
// Keep the order.
#include <ATen/core/Tensor.h>

#endif  // AIT_TENSOR_TORCH_INTERNAL_H_

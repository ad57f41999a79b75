// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_TORCH_EXECUTOR_H_
#define AIT_OPTIM_TORCH_EXECUTOR_H_

// The threads of libtorch as an Executor: the same pool that runs its operators, so that a process
// has one pool, and one number (at::set_num_threads, OMP_NUM_THREADS) sizes it.
//
// Use this rather than at::parallel_for: that is a template, and in a source compiled without
// OpenMP it runs everything on the calling thread, without a word.
//
//   auto bound = ait::AdamW{}.Bind(layout, {.executor = ait::TorchExecutor()});

#include "ait/optim/executor.h"

namespace ait::inline v0 {

/// An executor over the intra-op threads that libtorch has now, for the calling thread. A later
/// change of their number changes who runs which part, not the parts.
Executor TorchExecutor();

}  // namespace ait::inline v0

#endif  // AIT_OPTIM_TORCH_EXECUTOR_H_

// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/torch_executor.h"

#include <ATen/Parallel.h>

#include <cstdint>

#ifndef INTRA_OP_PARALLEL
#error "at::parallel_for is serial in this source: compile it with OpenMP"
#endif

namespace ait::inline v0 {

Executor TorchExecutor() {
  return {.threads = at::get_num_threads(),
          .run = [](int parts, const std::function<void(int)>& part) {
            at::parallel_for(0, parts, 1, [&](std::int64_t begin, std::int64_t end) {
              for (std::int64_t i = begin; i < end; ++i) part(static_cast<int>(i));
            });
          }};
}

}  // namespace ait::inline v0

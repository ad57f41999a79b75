// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_NUMA_MAKER_INTERNAL_H_
#define AIT_MEMORY_NUMA_MAKER_INTERNAL_H_

// Makes a NumaResource over other system calls, for tests.

#include <memory>

#include "ait/memory/numa.h"
#include "memory/numa_ops_internal.h"

namespace ait::inline v0 {

struct NumaResourceMaker {
  /// As NumaResource::Create. `ops` outlive the resource.
  static StatusOr<std::shared_ptr<NumaResource>> Make(const NumaOptions& options,
                                                      internal::NumaOps& ops);
};

}  // namespace ait::inline v0

#endif  // AIT_MEMORY_NUMA_MAKER_INTERNAL_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_LAYOUT_OF_INTERNAL_H_
#define AIT_PARALLEL_LAYOUT_OF_INTERNAL_H_

#include "ait/base/status.h"
#include "ait/parallel/data_parallel.h"

namespace ait::inline v0::internal {

/// The layout of an engine with these options over `ranks` that shard.
StatusOr<FlatLayout> LayoutOf(const NamedTensors& parameters, const DataParallelOptions& options,
                              WorldSize ranks);

}  // namespace ait::inline v0::internal

#endif  // AIT_PARALLEL_LAYOUT_OF_INTERNAL_H_

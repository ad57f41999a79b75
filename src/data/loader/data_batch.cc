// SPDX-License-Identifier: Apache-2.0
#include "ait/data/loader/data_batch.h"

#include <algorithm>
#include <utility>

#include "ait/memory/heap.h"

namespace ait::inline v0 {

StatusOr<DataBatch> CopyBatch(const DataBatch& batch) {
  DataBatch copy{.samples = batch.samples,
                 .planned = batch.planned,
                 .weights = batch.weights,
                 .row_begins = batch.row_begins,
                 .global_samples = batch.global_samples,
                 .after = batch.after};
  for (const BatchArray& array : batch.arrays) {
    if (array.device == nullptr) continue;
    return FailedPreconditionError("array \"", array.name,
                                   "\" of a batch is on a device, where a copy of it would not "
                                   "be; copy a batch of a loader without device_copy");
  }
  const MemoryHandle heap = HeapResource::Create();
  for (const BatchArray& array : batch.arrays) {
    AIT_ASSIGN_OR_RETURN(HostBuffer buffer, HostBuffer::Create(heap, array.size_bytes()));
    std::ranges::copy(array.bytes(), buffer.bytes().begin());
    copy.arrays.push_back({.name = array.name,
                           .dtype = array.dtype,
                           .shape = array.shape,
                           .buffer = std::move(buffer)});
  }
  return copy;
}

}  // namespace ait::inline v0

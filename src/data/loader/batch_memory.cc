// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/heap.h"
#include "ait/memory/numa.h"
#include "ait/memory/pinned.h"
#include "ait/topology/machine.h"
#include "data/loader/loader_core_internal.h"

namespace ait::inline v0 {
namespace internal {

// The loader keeps free buffers itself, within its budget; so the resources keep none.
StatusOr<MemoryHandle> DefaultBatchMemory(const std::shared_ptr<DeviceRuntime>& gpus) {
  MemoryHandle pageable = HeapResource::Create();
  const StatusOr<Machine> machine = ReadMachine();
  if (machine.ok() && machine->nodes.size() > 1) {
    StatusOr<std::shared_ptr<NumaResource>> numa =
        NumaResource::Create({.policy = NumaPolicy::kPreferred, .max_cached = Bytes(0)});
    // Where nodes cannot be told apart, the heap is as good.
    if (numa.ok()) pageable = *std::move(numa);
  }
  if (gpus == nullptr || gpus->count() == 0) return pageable;
  AIT_ASSIGN_OR_RETURN(std::shared_ptr<PinnedResource> pinned,
                       PinnedResource::Create({.upstream = pageable,
                                               .gpus = gpus,
                                               .on_failure = PinFailure::kUsePageable,
                                               .max_cached = Bytes(0)}));
  return MemoryHandle(std::move(pinned));
}

}  // namespace internal
}  // namespace ait::inline v0

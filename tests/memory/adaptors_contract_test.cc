// SPDX-License-Identifier: Apache-2.0
// Each adaptor over the heap does what every resource does.
#include "ait/memory/heap.h"
#include "ait/memory/tracking.h"
#include "contract/memory_resource_contract.h"

namespace ait {
namespace {

struct TrackingMaker {
  static MemoryHandle Make() { return TrackingResource::Create(HeapResource::Create()); }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Tracking, MemoryResourceContract, TrackingMaker);

struct TrackingWithStacksMaker {
  static MemoryHandle Make() {
    return TrackingResource::Create(HeapResource::Create(), {.stack_depth = 16});
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(TrackingWithStacks, MemoryResourceContract, TrackingWithStacksMaker);

}  // namespace
}  // namespace ait

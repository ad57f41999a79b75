// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/heap.h"
#include "ait/memory/shared_arena.h"
#include "ait/memory/statistics.h"
#include "contract/memory_resource_contract.h"

namespace ait {
namespace {

struct StatisticsOfHeapMaker {
  static MemoryHandle Make() { return StatisticsResource::Create(HeapResource::Create()); }
};
INSTANTIATE_TYPED_TEST_SUITE_P(StatisticsOfHeap, MemoryResourceContract, StatisticsOfHeapMaker);

struct StatisticsOfArenaMaker {
  static MemoryHandle Make() {
    return StatisticsResource::Create(SharedArena::Create({.capacity = MiB(64)}).value());
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(StatisticsOfArena, MemoryResourceContract, StatisticsOfArenaMaker);

}  // namespace
}  // namespace ait

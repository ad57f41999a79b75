// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/heap.h"
#include "ait/memory/pool.h"
#include "contract/memory_resource_contract.h"

namespace ait {
namespace {

struct PoolMaker {
  static MemoryHandle Make() { return *PoolResource::Create(); }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Pool, MemoryResourceContract, PoolMaker);

struct PoolThatKeepsNothingMaker {
  static MemoryHandle Make() {
    return *PoolResource::Create({.chunk_bytes = Bytes(0),
                                  .idle_time = std::chrono::milliseconds(0),
                                  .huge_pages = HugePages::kNever});
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(PoolThatKeepsNothing, MemoryResourceContract,
                               PoolThatKeepsNothingMaker);

struct PoolOverHeapMaker {
  static MemoryHandle Make() { return *PoolResource::Create({.upstream = HeapResource::Create()}); }
};
INSTANTIATE_TYPED_TEST_SUITE_P(PoolOverHeap, MemoryResourceContract, PoolOverHeapMaker);

struct PoolOverPoolMaker {
  static MemoryHandle Make() {
    return *PoolResource::Create({.upstream = *PoolResource::Create()});
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(PoolOverPool, MemoryResourceContract, PoolOverPoolMaker);

}  // namespace
}  // namespace ait

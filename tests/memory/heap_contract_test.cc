// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/heap.h"
#include "contract/memory_resource_contract.h"

namespace ait {
namespace {

struct HeapMaker {
  static MemoryHandle Make() { return HeapResource::Create(); }
};
INSTANTIATE_TYPED_TEST_SUITE_P(Heap, MemoryResourceContract, HeapMaker);

struct HeapThatKeepsNothingMaker {
  static MemoryHandle Make() {
    return HeapResource::Create({.max_cached = Bytes(0), .huge_pages = HugePages::kNever});
  }
};
INSTANTIATE_TYPED_TEST_SUITE_P(HeapThatKeepsNothing, MemoryResourceContract,
                               HeapThatKeepsNothingMaker);

}  // namespace
}  // namespace ait

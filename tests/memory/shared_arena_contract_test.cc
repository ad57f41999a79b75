// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/shared_arena.h"
#include "contract/memory_resource_contract.h"

namespace ait {
namespace {

struct SharedArenaMaker {
  static MemoryHandle Make() { return SharedArena::Create({.capacity = MiB(64)}).value(); }
};
INSTANTIATE_TYPED_TEST_SUITE_P(SharedArena, MemoryResourceContract, SharedArenaMaker);

}  // namespace
}  // namespace ait

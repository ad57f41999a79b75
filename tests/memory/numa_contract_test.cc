// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/numa.h"
#include "contract/memory_resource_contract.h"

namespace ait {
namespace {

template <NumaPolicy policy, PageKind pages, FirstTouch first_touch, int max_cached_mib>
struct NumaMaker {
  static MemoryHandle Make() {
    return NumaResource::Create({.policy = policy,
                                 .weights = policy == NumaPolicy::kWeighted ? std::vector<int>{1}
                                                                            : std::vector<int>{},
                                 .pages = pages,
                                 .first_touch = first_touch,
                                 .chunk = MiB(8),
                                 .max_cached = MiB(max_cached_mib)})
        .value();
  }
};

using Preferred =
    NumaMaker<NumaPolicy::kPreferred, PageKind::kTransparentHuge, FirstTouch::kAtAllocation, 1024>;
INSTANTIATE_TYPED_TEST_SUITE_P(Preferred, MemoryResourceContract, Preferred);

using StrictThatKeepsNothing =
    NumaMaker<NumaPolicy::kStrict, PageKind::kSmall, FirstTouch::kAtAllocation, 0>;
INSTANTIATE_TYPED_TEST_SUITE_P(StrictThatKeepsNothing, MemoryResourceContract,
                               StrictThatKeepsNothing);

using InterleavedTouchedByUser =
    NumaMaker<NumaPolicy::kInterleave, PageKind::kTransparentHuge, FirstTouch::kByUser, 64>;
INSTANTIATE_TYPED_TEST_SUITE_P(InterleavedTouchedByUser, MemoryResourceContract,
                               InterleavedTouchedByUser);

using Local = NumaMaker<NumaPolicy::kLocal, PageKind::kSmall, FirstTouch::kAtAllocation, 64>;
INSTANTIATE_TYPED_TEST_SUITE_P(Local, MemoryResourceContract, Local);

}  // namespace
}  // namespace ait

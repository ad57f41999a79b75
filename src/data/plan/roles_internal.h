// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_PLAN_ROLES_INTERNAL_H_
#define AIT_DATA_PLAN_ROLES_INTERNAL_H_

// Seeds of the several permutations of a plan, which must not be the same. Numbers of roles are
// part of the order and never change.

#include <cstdint>

#include "data/mix_internal.h"

namespace ait::inline v0 {
namespace internal {

enum class SeedRole : std::uint64_t {
  kPool = 1,    // a source of a mixture
  kBlocks = 2,  // the order of blocks
  kWindow = 3,  // within a window of blocks
  kRest = 4,    // which part of a source comes once more
  kGroups = 5,  // groups of like length
  kRows = 6,    // packed rows
};

/// The seed of the `number`-th permutation of that role.
constexpr std::uint64_t SeedOf(std::uint64_t seed, SeedRole role, std::int64_t number) {
  return Fold(Fold(seed, static_cast<std::uint64_t>(role)), static_cast<std::uint64_t>(number));
}

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_PLAN_ROLES_INTERNAL_H_

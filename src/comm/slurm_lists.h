// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_SLURM_LISTS_H_
#define AIT_COMM_SLURM_LISTS_H_

// The two list syntaxes of Slurm's environment (srun(1), scontrol(1) "show hostnames").

#include <string>
#include <string_view>
#include <vector>

#include "ait/base/status.h"

namespace ait::inline v0::internal {

/// Most entries that a list may stand for.
inline constexpr std::size_t kMaxSlurmEntries = 1'000'000;

/// "2(x3),1" is 2, 2, 2, 1: tasks of each node. **Errors.** InvalidArgument: anything else, a
/// number below 1.
StatusOr<std::vector<int>> ParseTasksPerNode(std::string_view text);

/// "n[0-1,07-08],m2" is n0, n1, n07, n08, m2; several brackets in a name count like digits of a
/// number, the last one fastest. **Errors.** InvalidArgument: anything else.
StatusOr<std::vector<std::string>> ParseNodeList(std::string_view text);

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_SLURM_LISTS_H_

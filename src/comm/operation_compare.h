// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_OPERATION_COMPARE_H_
#define AIT_COMM_OPERATION_COMPARE_H_

// What ranks can only say together about a collective: whether all of them mean the same one.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ait/base/status.h"
#include "ait/comm/operation.h"

namespace ait::inline v0::internal {

/// "rank 3", or "ranks 1, 3": for messages.
std::string RankList(std::span<const int> ranks);

/// InvalidArgument that says which ranks ask for what if the `signatures`, one a rank, are not all
/// equal. `descriptions` are those of `Operation::Describe`, one a rank.
Status CompareSignatures(std::span<const std::uint64_t> signatures,
                         std::span<const std::string> descriptions);

/// InvalidArgument if a rank of an all-to-all sends another number of elements than the other
/// expects. `sent[i][j]` and `received[j][i]` are what rank i sends to rank j and rank j receives
/// from rank i.
Status CompareAllToAllCounts(std::span<const std::vector<std::int64_t>> sent,
                             std::span<const std::vector<std::int64_t>> received);

/// Both checks, where the operations of all ranks are at hand.
Status CompareOperations(std::span<const Operation* const> operations);

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_OPERATION_COMPARE_H_

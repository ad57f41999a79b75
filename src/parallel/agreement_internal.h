// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_PARALLEL_AGREEMENT_INTERNAL_H_
#define AIT_PARALLEL_AGREEMENT_INTERNAL_H_

// The start-up check: do all ranks have the same model and the same options?
//
// One exchange of a fingerprint when they do. When they do not, a second one of the facts
// themselves, so that every rank returns the same error, which names the parameters and the ranks
// that differ.

#include <cstdint>
#include <string>
#include <vector>

#include "ait/base/status.h"
#include "ait/comm/communicator.h"
#include "ait/parallel/flat_layout.h"

namespace ait::inline v0::internal {

/// What must be the same on all ranks, as text: "name: value" each.
using Facts = std::vector<std::string>;

/// The facts of a model: one for each parameter.
Facts FactsOf(const std::vector<ParameterInfo>& parameters);

/// **Collective. Blocks.** Compares `facts` and `layout_hash` over the ranks. A rank that cannot
/// take part gives its reason as `local`; then all ranks fail with it.
/// **Errors.** InvalidArgument, the same text on every rank; those of the communicator.
Status CheckAgreement(Communicator& communicator, const Status& local, const Facts& facts,
                      std::uint64_t layout_hash, const OperationOptions& options);

/// "rank 1" or "ranks 1, 3": for messages.
std::string RankList(const std::vector<int>& ranks);

/// **Collective. Blocks.** Compares a number for each of `names`, such as the hash of its values.
/// **Errors.** InvalidArgument that names the first that differs and the ranks where it is not as
/// on rank 0; `what` says what was compared.
Status CheckEqual(Communicator& communicator, const std::vector<std::string>& names,
                  const std::vector<std::uint64_t>& values, std::string_view what,
                  const OperationOptions& options);

}  // namespace ait::inline v0::internal

#endif  // AIT_PARALLEL_AGREEMENT_INTERNAL_H_

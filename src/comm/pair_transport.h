// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_PAIR_TRANSPORT_H_
#define AIT_COMM_PAIR_TRANSPORT_H_

// The transport of an engine that connects pairs of ranks.

#include <memory>
#include <string>

#include "ait/comm/transport.h"
#include "comm/pair_group.h"
#include "comm/pair_hub.h"

namespace ait::inline v0::internal {

/// **Collective. Blocks.** Until the ranks of `options.members` are connected by `options.connect`.
/// The transport keeps `options.store`.
StatusOr<std::unique_ptr<Transport>> ConnectPairs(PairGroup::Options options, Deadline deadline);

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_PAIR_TRANSPORT_H_

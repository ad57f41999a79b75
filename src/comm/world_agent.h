// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_WORLD_AGENT_H_
#define AIT_COMM_WORLD_AGENT_H_

// How the ranks of torchrun find rank 0's TcpStore: through the store of torchrun's agent.
//
// The agent's store knows nothing of who is alive, so rank 0 serves a TcpStore of its own and
// publishes where. The agent's store is kept over restarts of the ranks, and restart counts are per
// host, so they cannot number the attempts of a run: rank 0 counts a generation up instead, and the
// others take the newest one that answers under its random run id.

#include <memory>

#include "ait/base/clock.h"
#include "ait/base/log.h"
#include "ait/base/status.h"
#include "ait/comm/store.h"
#include "ait/comm/tcp_store.h"
#include "ait/comm/world.h"

namespace ait::inline v0::internal {

/// **Collective. Blocks.** Until all ranks have joined the TcpStore. Changes `launch.run_id` to
/// that of this attempt.
/// **Errors.** Those of TcpStore::Create; DeadlineExceeded also if rank 0 published nothing.
StatusOr<std::unique_ptr<TcpStore>> JoinThroughAgent(Store& agent, LaunchInfo& launch,
                                                     std::chrono::milliseconds timeout,
                                                     LogSink* log);

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_WORLD_AGENT_H_

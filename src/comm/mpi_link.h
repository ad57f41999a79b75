// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_MPI_LINK_H_
#define AIT_COMM_MPI_LINK_H_

// Messages of MPI between the ranks of a group.

#include <memory>
#include <string>
#include <vector>

#include "ait/base/clock.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/tcp_store.h"
#include "comm/mpi_session.h"
#include "comm/pair_link.h"

namespace ait::inline v0::internal {

/// **Collective. Blocks.** Over the members, until all have come: makes their communicator of MPI.
/// `members` are ranks of MPI_COMM_WORLD; `name` is unique in the run.
StatusOr<std::unique_ptr<PairLink>> ConnectMpi(std::shared_ptr<MpiSession> session,
                                               std::shared_ptr<TcpStore> store,
                                               const std::string& name,
                                               const std::vector<Rank>& members, Rank rank,
                                               Deadline deadline);

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_MPI_LINK_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_WORLD_HOSTS_H_
#define AIT_COMM_WORLD_HOSTS_H_

// What the ranks tell each other about where they run, as soon as they have met.

#include <string>
#include <vector>

#include "ait/base/clock.h"
#include "ait/base/status.h"
#include "ait/comm/tcp_store.h"
#include "ait/comm/world.h"

namespace ait::inline v0::internal {

/// What one rank says of its place.
struct RankPlace {
  std::string host;     // HostIdentity of comm/shared_memory.h
  std::string name;     // of the host, for people
  std::string address;  // by which the others reach it
  std::string cpus;     // that it may use, "0-3,8"; empty if unknown
  std::string quota;    // CPUs' worth of time that the ranks of its host share; empty if unlimited
};

/// Of this process. What cannot be read is empty.
RankPlace OwnPlace(const std::string& address);

/// **Collective. Blocks.** The places of all ranks. Rank 0 gathers them and passes them on.
/// **Errors.** Unavailable: a rank died meanwhile; DeadlineExceeded.
StatusOr<std::vector<RankPlace>> ExchangePlaces(TcpStore& store, const LaunchInfo& launch,
                                                const RankPlace& own, Deadline deadline);

/// The ranks by host, in the order of the first rank of each.
std::vector<WorldHost> HostsOf(const std::vector<RankPlace>& places);

/// How many threads a rank may have: its CPUs, divided by the ranks of its host that share some,
/// and no more than its share of the quota.
int ThreadsOf(const std::vector<RankPlace>& places, Rank rank);

/// The interface that has an address, or "" if none has.
std::string InterfaceOf(const std::string& address);

/// InvalidArgument with the interfaces that there are, if none is called `name`.
Status CheckInterface(const std::string& name);

bool IsLoopbackAddress(std::string_view address);

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_WORLD_HOSTS_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_FIND_HOSTS_H_
#define AIT_COMM_FIND_HOSTS_H_

// Which ranks share a host, told by themselves through the store.

#include <string>
#include <vector>

#include "ait/base/clock.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/store.h"
#include "comm/host_layout.h"

namespace ait::inline v0::internal {

/// **Collective. Blocks.** Gives for each rank a number of its host, the same on all ranks: ranks
/// with equal `identity` share one. Below `key` nobody else writes. **Errors.** DeadlineExceeded
/// names a rank that did not come.
StatusOr<std::vector<int>> FindHosts(Store& store, const std::string& key, Rank rank,
                                     WorldSize size, const std::string& identity,
                                     Deadline deadline);

/// "8 ranks on 2 hosts: 0 to 3; 4 to 7": for people.
std::string DescribeHosts(const HostLayout& layout);

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_FIND_HOSTS_H_

// SPDX-License-Identifier: Apache-2.0
// hierarchical_contract_rank: one rank that runs every case of the communicator contract over two
// hosts, shared memory inside and Gloo between.
#include <cstdlib>

#include "multiprocess/contract_rank.h"
#include "multiprocess/pretended_hosts.h"

int main() {
  const char* size = std::getenv("WORLD_SIZE");
  ait::testing::SetContractHosts(ait::testing::PretendedHostsOf(size ? std::atoi(size) : 1));
  ait::testing::PretendedHosts hosts({.chunk = ait::KiB(64)});
  return ait::testing::RunContractRank(hosts);
}

// SPDX-License-Identifier: Apache-2.0
// The communicator contract over hosts of threads: even, uneven, three of them, and ranks that are
// dealt out to hosts in turn.
#include "comm/hierarchical_support.h"
#include "contract/communicator_contract.h"

namespace ait {
namespace {

/// The host of each rank, for every world size of the test.
std::vector<int> HostsOf(int size) {
  switch (size) {
    case 2:
      return {0, 1};
    case 3:
      return {0, 0, 1};
    case 4:
      return {0, 0, 1, 1};
    case 5:
      return {0, 0, 1, 1, 1};
    case 6:
      return {0, 1, 2, 0, 1, 2};
    case 7:
      return {0, 0, 0, 1, 1, 2, 2};
    default:
      return std::vector<int>(static_cast<std::size_t>(size), 0);
  }
}

std::vector<Status> RunOnHosts(const testing::ContractCase& contract_case, WorldSize size) {
  const std::vector<int> hosts = HostsOf(size.value());
  testing::SetContractHosts(hosts);
  return testing::OnHosts(hosts, {.chunk = KiB(64)}, {.timeout = testing::kContractTimeout},
                          contract_case.body);
}

}  // namespace
}  // namespace ait

AIT_COMMUNICATOR_CONTRACT(Hosts, ait::RunOnHosts, CommunicatorContractCases(), 1, 2, 3, 4, 5, 6, 7)

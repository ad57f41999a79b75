// SPDX-License-Identifier: Apache-2.0
#include "contract/communicator_contract.h"

#include "contract/communicator_contract_cases.h"

namespace ait::testing {
namespace {

std::vector<std::vector<int>> contract_hosts;

}  // namespace

const std::vector<std::vector<int>>& ContractHosts() { return contract_hosts; }

void SetContractHosts(const std::vector<int>& host_of_rank) {
  contract_hosts.clear();
  std::vector<int> names;  // by lowest rank
  for (std::size_t rank = 0; rank < host_of_rank.size(); ++rank) {
    const auto found = std::find(names.begin(), names.end(), host_of_rank[rank]);
    const auto host = static_cast<std::size_t>(found - names.begin());
    if (found == names.end()) {
      names.push_back(host_of_rank[rank]);
      contract_hosts.emplace_back();
    }
    contract_hosts[host].push_back(static_cast<int>(rank));
  }
}

const std::vector<ContractCase>& CommunicatorContractCases() {
  static const std::vector<ContractCase> cases = [] {
    std::vector<ContractCase> all = DataCases();
    for (const auto& more : {GroupCases(), ReachCases(), FaultCases(), SurvivorCases()}) {
      all.insert(all.end(), more.begin(), more.end());
    }
    return all;
  }();
  return cases;
}

const ContractCase* FindContractCase(std::string_view name) {
  for (const ContractCase& contract_case : CommunicatorContractCases()) {
    if (contract_case.name == name) return &contract_case;
  }
  return nullptr;
}

}  // namespace ait::testing

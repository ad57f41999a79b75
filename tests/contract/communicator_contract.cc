// SPDX-License-Identifier: Apache-2.0
#include "contract/communicator_contract.h"

#include "contract/communicator_contract_cases.h"

namespace ait::testing {

const std::vector<ContractCase>& CommunicatorContractCases() {
  static const std::vector<ContractCase> cases = [] {
    std::vector<ContractCase> all = DataCases();
    for (const auto& more : {GroupCases(), FaultCases()}) {
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

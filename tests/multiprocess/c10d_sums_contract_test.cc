// SPDX-License-Identifier: Apache-2.0
// The communicator contract where the backend of c10d sums: libtorch's ProcessGroupGloo, in the
// order of a ring. With two ranks it keeps all cases; with three those that are not named here.
#include <cstdlib>
#include <set>

#include "multiprocess/contract_ranks.h"

namespace ait::testing {
namespace {

std::vector<ContractCase> CasesOfTwo() {
  setenv("C10D_SUMS", "backend", 1);  // before the first rank is started
  return CommunicatorContractCases();
}

std::vector<ContractCase> CasesOfThree() {
  static const std::set<std::string> not_kept = {
      "AllReduce",                   // x0 + x1 + x2 in another order: other last bits
      "AllReduceInRankOrder",        // the same
      "HalfPrecisionIsRoundedOnce",  // Gloo rounds at each addition
      "ManyInFlight",                // compares sums bit for bit
      "ReduceScatter",               // the same
  };
  std::vector<ContractCase> cases;
  for (const ContractCase& one : CommunicatorContractCases()) {
    if (!not_kept.contains(one.name)) cases.push_back(one);
  }
  EXPECT_EQ(cases.size() + not_kept.size(), CommunicatorContractCases().size());
  return cases;
}

INSTANTIATE_TEST_SUITE_P(OfThree, CommunicatorContract,
                         ::testing::ValuesIn(ContractParameters(RunOnProcesses, CasesOfThree(),
                                                                {3})),
                         ContractName);

}  // namespace
}  // namespace ait::testing

AIT_COMMUNICATOR_CONTRACT(OfTwo, RunOnProcesses, CasesOfTwo(), 2);

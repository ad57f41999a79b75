// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_CONTRACT_COMMUNICATOR_CONTRACT_H_
#define AIT_TESTS_CONTRACT_COMMUNICATOR_CONTRACT_H_

// The contract of `Communicator`: what every transport must do, as cases that any of them can run.
//
// A case is a function that every rank of a fresh group runs once; it returns what went wrong. It
// knows neither threads nor processes. A test of a transport says how a group is made: threads call
// the function directly, processes are started with the name of the case and look it up.
//
//   std::vector<Status> RunOnThreads(const ContractCase& contract_case, WorldSize size);
//   AIT_COMMUNICATOR_CONTRACT(Threads, RunOnThreads, CommunicatorContractCases(), 1, 2, 3, 4);
//
// and in the main of a rank: return FindContractCase(argv[1])->body(std::move(communicator));

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/communicator.h"

namespace ait::testing {

/// One promise of `Communicator`.
struct ContractCase {
  const char* name;
  /// Runs on every rank. Gets the only reference to the rank's communicator: when it returns, or
  /// resets it, the rank leaves the group.
  Status (*body)(std::shared_ptr<Communicator> communicator);
  /// The least world size at which the case means something.
  int min_size = 1;
};

/// The timeout that the communicators of a contract run with.
inline constexpr std::chrono::seconds kContractTimeout{60};

const std::vector<ContractCase>& CommunicatorContractCases();

/// Tells the cases that the transport adds host by host, and the host of each rank (see
/// ait/comm/hierarchical.h). Empty, as at first: rank by rank. Not while a case runs.
void SetContractHosts(const std::vector<int>& host_of_rank);

/// The case of that name; nullptr if there is none.
const ContractCase* FindContractCase(std::string_view name);

/// Makes a group of `size` ranks, runs the case on each, and returns the status of each.
using ContractRunner = std::vector<Status> (*)(const ContractCase& contract_case, WorldSize size);

/// Parameters: how to run, what, on how many ranks.
class CommunicatorContract
    : public ::testing::TestWithParam<std::tuple<ContractRunner, ContractCase, int>> {};

/// The parameters of every case at every world size at which it means something.
inline std::vector<std::tuple<ContractRunner, ContractCase, int>> ContractParameters(
    ContractRunner run, const std::vector<ContractCase>& cases, const std::vector<int>& sizes) {
  std::vector<std::tuple<ContractRunner, ContractCase, int>> result;
  for (const ContractCase& contract_case : cases) {
    for (const int size : sizes) {
      if (size >= contract_case.min_size) result.emplace_back(run, contract_case, size);
    }
  }
  return result;
}

inline std::string ContractName(
    const ::testing::TestParamInfo<CommunicatorContract::ParamType>& parameter) {
  return StrCat(std::get<1>(parameter.param).name, "_", std::get<2>(parameter.param));
}

/// Runs one case and reports what every rank says.
inline void CheckContract(const CommunicatorContract::ParamType& parameter) {
  const auto& [run, contract_case, size] = parameter;
  const std::vector<Status> statuses = run(contract_case, WorldSize(size));
  EXPECT_EQ(static_cast<int>(statuses.size()), size);
  for (std::size_t rank = 0; rank < statuses.size(); ++rank) {
    EXPECT_TRUE(statuses[rank].ok()) << "rank " << rank << ": " << statuses[rank].ToString();
  }
}

}  // namespace ait::testing

/// Instantiates the suite as `Name/CommunicatorContract`; the world sizes come last.
#define AIT_COMMUNICATOR_CONTRACT(Name, run, cases, ...)                                       \
  namespace ait::testing {                                                                     \
  TEST_P(CommunicatorContract, Holds) { CheckContract(GetParam()); }                           \
  INSTANTIATE_TEST_SUITE_P(Name, CommunicatorContract,                                         \
                           ::testing::ValuesIn(ContractParameters(run, cases, {__VA_ARGS__})), \
                           ContractName);                                                      \
  }

#endif  // AIT_TESTS_CONTRACT_COMMUNICATOR_CONTRACT_H_

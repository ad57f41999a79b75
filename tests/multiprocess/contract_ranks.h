// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_MULTIPROCESS_CONTRACT_RANKS_H_
#define AIT_TESTS_MULTIPROCESS_CONTRACT_RANKS_H_

// The communicator contract on processes: starts AIT_TEST_RANK, whose main is that of
// contract_rank.h, and takes what the ranks say.

#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "contract/communicator_contract.h"
#include "support/process.h"

namespace ait::testing {

/// What each rank said of each case; all cases of a world size run in one set of processes.
using Reports = std::vector<std::map<std::string, std::string>>;

inline Reports RunContractRanks(int size) {
  auto ranks = SpawnRanks({.program = AIT_TEST_RANK, .timeout = std::chrono::seconds(120)}, size);
  Reports reports;
  for (Process& rank : ranks) {
    const Exit exit = rank.Wait();
    std::map<std::string, std::string> report;
    std::istringstream lines(exit.output);
    for (std::string line; std::getline(lines, line);) {
      const std::size_t tab = line.find('\t');
      if (tab != std::string::npos) report[line.substr(0, tab)] = line.substr(tab + 1);
    }
    EXPECT_EQ(exit.code, 0) << exit.output;
    reports.push_back(std::move(report));
  }
  return reports;
}

inline std::vector<Status> RunOnProcesses(const ContractCase& contract_case, WorldSize size) {
  static std::map<int, Reports> all;
  if (!all.contains(size.value())) all[size.value()] = RunContractRanks(size.value());
  std::vector<Status> statuses;
  for (const auto& report : all[size.value()]) {
    const auto found = report.find(contract_case.name);
    const std::string text = found == report.end() ? "the rank did not come to it" : found->second;
    statuses.push_back(text == "ok" ? OkStatus() : UnavailableError(text));
  }
  return statuses;
}

}  // namespace ait::testing

#endif  // AIT_TESTS_MULTIPROCESS_CONTRACT_RANKS_H_

// SPDX-License-Identifier: Apache-2.0
// The communicator contract over MPI, on 1, 2 and 4 processes that Open MPI's mpirun starts.
#include <unistd.h>

#include <fstream>

#include "multiprocess/contract_ranks.h"

namespace ait::testing {
namespace {

constexpr const char* kMpirun = "/usr/bin/mpirun.openmpi";

// mpirun writes what rank R says into FOLDER/1/rank.R/stdout.
Reports RunUnderMpirun(int size) {
  const TempDir folder;
  Process mpirun = Process::Spawn(
      {.program = kMpirun,
       .args = {"--output-filename", folder.path(), "--oversubscribe", "--bind-to", "none", "--mca",
                "oob_tcp_if_include", "lo", "--mca", "btl", "self,vader", "-n", StrCat(size),
                AIT_TEST_RANK},
       .environment = {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}},
       .timeout = std::chrono::seconds(200)});
  const Exit exit = mpirun.Wait();
  EXPECT_EQ(exit.code, 0) << exit.output;
  Reports reports(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    std::ifstream lines(folder / StrCat("1/rank.", rank, "/stdout"));
    for (std::string line; std::getline(lines, line);) {
      const std::size_t tab = line.find('\t');
      if (tab == std::string::npos) continue;
      reports[static_cast<std::size_t>(rank)][line.substr(0, tab)] = line.substr(tab + 1);
    }
  }
  return reports;
}

std::vector<Status> RunOverMpi(const ContractCase& contract_case, WorldSize size) {
  static std::map<int, Reports> all;
  if (!all.contains(size.value())) all[size.value()] = RunUnderMpirun(size.value());
  std::vector<Status> statuses;
  for (const auto& report : all[size.value()]) {
    const auto found = report.find(contract_case.name);
    const std::string text = found == report.end() ? "the rank did not come to it" : found->second;
    statuses.push_back(text == "ok" ? OkStatus() : UnavailableError(text));
  }
  return statuses;
}

class OverMpi : public CommunicatorContract {};

TEST_P(OverMpi, Holds) {
  if (access(kMpirun, X_OK) != 0) GTEST_SKIP() << kMpirun << " is missing (package openmpi-bin)";
  CheckContract(GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    Mpi, OverMpi,
    ::testing::ValuesIn(ContractParameters(RunOverMpi, CommunicatorContractCases(), {1, 2, 4})),
    ContractName);

}  // namespace
}  // namespace ait::testing

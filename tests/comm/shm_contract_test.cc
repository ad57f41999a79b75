// SPDX-License-Identifier: Apache-2.0
// The communicator contract over shared memory, with ranks as threads that share one mapping: what a
// race detector can follow. With processes: shared_memory_contract_test.cc in tests/multiprocess.
#include <thread>
#include <utility>
#include <vector>

#include "ait/comm/communicator.h"
#include "comm/shm_ranks.h"
#include "contract/communicator_contract.h"

namespace ait::testing {
namespace {

std::vector<Status> Run(const ContractCase& contract_case, WorldSize size,
                        const internal::ShmThreadOptions& options) {
  auto transports = internal::MakeShmThreadRanks(size, options);
  if (!transports.ok()) return {transports.status()};
  std::vector<Status> statuses(transports->size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < statuses.size(); ++rank) {
    threads.emplace_back([&, rank] {
      statuses[rank] = contract_case.body(std::make_shared<Communicator>(
          std::move((*transports)[rank]), CommunicatorOptions{.timeout = kContractTimeout}));
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

std::vector<Status> RunOnThreads(const ContractCase& contract_case, WorldSize size) {
  return Run(contract_case, size, {});
}

/// The least staging memory, so that all but the smallest operations take many rounds; and rounds
/// that wrap around soon.
std::vector<Status> RunTight(const ContractCase& contract_case, WorldSize size) {
  return Run(contract_case, size,
             {.shared_memory = {.staging = KiB(64)}, .start = ~std::uint64_t{0} - 2});
}

}  // namespace
}  // namespace ait::testing

AIT_COMMUNICATOR_CONTRACT(SharedMemoryThreads, RunOnThreads, CommunicatorContractCases(), 1, 2, 3,
                          4, 5);

namespace ait::testing {
INSTANTIATE_TEST_SUITE_P(
    SharedMemoryTight, CommunicatorContract,
    ::testing::ValuesIn(ContractParameters(RunTight, CommunicatorContractCases(), {2, 4})),
    ContractName);
}  // namespace ait::testing

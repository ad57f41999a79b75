// SPDX-License-Identifier: Apache-2.0
#include "ait/comm/communicator.h"

#include <thread>

#include "ait/comm/thread_group.h"
#include "contract/communicator_contract.h"

namespace ait {
namespace {

std::vector<Status> RunOnThreads(const testing::ContractCase& contract_case, WorldSize size) {
  auto ranks = MakeThreadGroup(size, {.timeout = testing::kContractTimeout});
  std::vector<Status> statuses(ranks.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    threads.emplace_back(
        [&, rank] { statuses[rank] = contract_case.body(std::move(ranks[rank])); });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

}  // namespace
}  // namespace ait

AIT_COMMUNICATOR_CONTRACT(Threads, ait::RunOnThreads, CommunicatorContractCases(), 1, 2, 3, 4, 5, 6,
                          7, 8)

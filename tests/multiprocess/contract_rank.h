// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_MULTIPROCESS_CONTRACT_RANK_H_
#define AIT_TESTS_MULTIPROCESS_CONTRACT_RANK_H_

// One rank that runs every case of the communicator contract, over any transport.
//
//   int main() { return ait::testing::RunContractRank(*ait::Gloo()); }
//
// Each case gets a fresh group of all ranks. Prints a line a case: its name, a tab, "ok" or the
// error. The test that starts it reads them with contract_ranks.h.

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "ait/comm/tcp_store.h"
#include "ait/comm/transport.h"
#include "ait/comm/world.h"
#include "contract/communicator_contract.h"

namespace ait::testing {

inline StatusOr<std::shared_ptr<Communicator>> JoinContractRanks(TransportProvider& provider) {
  AIT_ASSIGN_OR_RETURN(const LaunchInfo launch, LaunchInfo::FromEnv(Env::FromProcess()));
  AIT_ASSIGN_OR_RETURN(std::shared_ptr<TcpStore> store,
                       TcpStore::Create({.rank = launch.rank,
                                         .size = launch.size,
                                         .host = launch.master_address,
                                         .port = launch.master_port,
                                         .listen_fd = launch.listen_fd,
                                         .run_id = launch.run_id}));
  AIT_ASSIGN_OR_RETURN(
      std::unique_ptr<Transport> transport,
      provider.Connect(launch, std::move(store), Deadline::After(std::chrono::minutes(1))));
  return std::make_shared<Communicator>(std::move(transport),
                                        CommunicatorOptions{.timeout = kContractTimeout});
}

inline Status RunContractCases(TransportProvider& provider) {
  AIT_ASSIGN_OR_RETURN(const std::shared_ptr<Communicator> all, JoinContractRanks(provider));
  const auto run = [&](const ContractCase& contract_case) -> Status {
    AIT_ASSIGN_OR_RETURN(std::shared_ptr<Communicator> group, all->Split(0, all->rank().value()));
    return contract_case.body(std::move(group));
  };
  for (const ContractCase& contract_case : CommunicatorContractCases()) {
    if (all->size().value() < contract_case.min_size) continue;
    std::string text = run(contract_case).ToString();
    std::replace(text.begin(), text.end(), '\n', ' ');
    std::printf("%s\t%s\n", contract_case.name, text == "OK" ? "ok" : text.c_str());
    std::fflush(stdout);
    AIT_RETURN_IF_ERROR(all->Barrier({.label = contract_case.name}).Wait());
  }
  return OkStatus();
}

inline int RunContractRank(TransportProvider& provider) {
  const Status status = RunContractCases(provider);
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}

}  // namespace ait::testing

#endif  // AIT_TESTS_MULTIPROCESS_CONTRACT_RANK_H_

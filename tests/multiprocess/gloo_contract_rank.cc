// SPDX-License-Identifier: Apache-2.0
// gloo_contract_rank: one rank that runs every case of the communicator contract over Gloo.
//
// Each case gets a fresh group of all ranks. Prints a line a case: its name, a tab, "ok" or the
// error.
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "ait/comm/tcp_store.h"
#include "ait/comm/transport.h"
#include "ait/tensor/gloo.h"
#include "contract/communicator_contract.h"

namespace ait {
namespace {

StatusOr<std::shared_ptr<Communicator>> Join() {
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
      Gloo()->Connect(launch, std::move(store), Deadline::After(std::chrono::minutes(1))));
  return std::make_shared<Communicator>(std::move(transport),
                                        CommunicatorOptions{.timeout = testing::kContractTimeout});
}

Status RunCase(Communicator& all, const testing::ContractCase& contract_case) {
  AIT_ASSIGN_OR_RETURN(std::shared_ptr<Communicator> group, all.Split(0, all.rank().value()));
  return contract_case.body(std::move(group));
}

Status RunAll() {
  AIT_ASSIGN_OR_RETURN(const std::shared_ptr<Communicator> all, Join());
  for (const testing::ContractCase& contract_case : testing::CommunicatorContractCases()) {
    if (all->size().value() < contract_case.min_size) continue;
    std::string text = RunCase(*all, contract_case).ToString();
    std::replace(text.begin(), text.end(), '\n', ' ');
    std::printf("%s\t%s\n", contract_case.name, text == "OK" ? "ok" : text.c_str());
    std::fflush(stdout);
    AIT_RETURN_IF_ERROR(all->Barrier({.label = contract_case.name}).Wait());
  }
  return OkStatus();
}

}  // namespace
}  // namespace ait

int main() {
  const ait::Status status = ait::RunAll();
  if (!status.ok()) std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}

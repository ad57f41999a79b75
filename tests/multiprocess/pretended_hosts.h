// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_MULTIPROCESS_PRETENDED_HOSTS_H_
#define AIT_TESTS_MULTIPROCESS_PRETENDED_HOSTS_H_

// Two hosts on one machine, for tests that may make no network: the lower half of the ranks says that
// it is one, the upper half another. Between them Gloo, inside each shared memory.

#include <memory>
#include <utility>
#include <vector>

#include "ait/comm/hierarchical.h"
#include "ait/comm/shared_memory.h"
#include "ait/comm/tcp_store.h"
#include "ait/comm/transport.h"
#include "ait/comm/world.h"
#include "ait/tensor/gloo.h"

namespace ait::testing {

/// The host of each rank.
inline std::vector<int> PretendedHostsOf(int size) {
  std::vector<int> hosts;
  for (int rank = 0; rank < size; ++rank) hosts.push_back(2 * rank / size);
  return hosts;
}

class PretendedHosts final : public TransportProvider {
 public:
  explicit PretendedHosts(HierarchicalTuning tuning = {}) : tuning_(tuning) {}
  std::string_view name() const override { return "pretended hosts"; }
  StatusOr<std::unique_ptr<Store>> JoinAgentStore(const LaunchInfo& launch,
                                                  Deadline deadline) override {
    return gloo_->JoinAgentStore(launch, deadline);
  }
  StatusOr<std::unique_ptr<Transport>> Connect(const LaunchInfo& launch,
                                               std::shared_ptr<TcpStore> store,
                                               Deadline deadline) override {
    HostGroups groups{
        .host_of_rank = PretendedHostsOf(launch.size.value()), .store = store, .key = "pretended"};
    const std::vector<int>& hosts = groups.host_of_rank;
    const int self = launch.rank.value(), host = hosts[static_cast<std::size_t>(self)];
    int local = 0, local_size = 0;
    for (int rank = 0; rank < launch.size.value(); ++rank) {
      if (hosts[static_cast<std::size_t>(rank)] != host) continue;
      ++local_size;
      if (rank < self) ++local;
    }
    AIT_ASSIGN_OR_RETURN(groups.between, gloo_->Connect(launch, store, deadline));
    if (local_size > 1) {
      AIT_ASSIGN_OR_RETURN(groups.inside,
                           JoinSharedMemory(*store, StrCat("pretended/", host), Rank(local),
                                            WorldSize(local_size), deadline));
    }
    return JoinHosts(std::move(groups), deadline, tuning_);
  }

 private:
  std::shared_ptr<TransportProvider> gloo_ = Gloo();
  HierarchicalTuning tuning_;
};

}  // namespace ait::testing

#endif  // AIT_TESTS_MULTIPROCESS_PRETENDED_HOSTS_H_

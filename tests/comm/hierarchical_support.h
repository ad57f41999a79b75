// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_COMM_HIERARCHICAL_SUPPORT_H_
#define AIT_TESTS_COMM_HIERARCHICAL_SUPPORT_H_

// Hosts that are groups of threads: a whole cluster in one process.

#include <algorithm>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "ait/comm/communicator.h"
#include "ait/comm/hierarchical.h"
#include "ait/comm/store.h"
#include "ait/comm/transport.h"
#include "comm/thread_transport.h"

namespace ait::testing {

/// The parts of every rank; `host_of_rank` names hosts by numbers from 0.
inline std::vector<HostGroups> ThreadHosts(const std::vector<int>& host_of_rank) {
  const auto store = MakeProcessStore();
  const int size = static_cast<int>(host_of_rank.size());
  std::vector<HostGroups> ranks;
  for (auto& between : internal::MakeThreadTransports(WorldSize(size))) {
    ranks.push_back(HostGroups{.host_of_rank = host_of_rank,
                               .between = std::move(between),
                               .store = store,
                               .key = "test"});
  }
  for (int host = 0; host < size; ++host) {
    std::vector<std::size_t> here;
    for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
      if (host_of_rank[rank] == host) here.push_back(rank);
    }
    if (here.size() < 2) continue;
    auto inside = internal::MakeThreadTransports(WorldSize(static_cast<int>(here.size())));
    for (std::size_t i = 0; i < here.size(); ++i) ranks[here[i]].inside = std::move(inside[i]);
  }
  return ranks;
}

/// Runs `body(communicator)` on a thread for each rank; gives what each returned.
inline std::vector<Status> OnHosts(
    const std::vector<int>& host_of_rank, const HierarchicalTuning& tuning,
    const CommunicatorOptions& options,
    const std::function<Status(std::shared_ptr<Communicator>)>& body) {
  std::vector<HostGroups> parts = ThreadHosts(host_of_rank);
  std::vector<Status> statuses(parts.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < parts.size(); ++rank) {
    threads.emplace_back([&, rank] {
      auto transport =
          JoinHosts(std::move(parts[rank]), Deadline::After(std::chrono::seconds(30)), tuning);
      statuses[rank] = transport.ok()
                           ? body(std::make_shared<Communicator>(*std::move(transport), options))
                           : transport.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  return statuses;
}

}  // namespace ait::testing

#endif  // AIT_TESTS_COMM_HIERARCHICAL_SUPPORT_H_

// SPDX-License-Identifier: Apache-2.0
#include "ait/comm/automatic.h"

#include <string_view>
#include <utility>
#include <vector>

#include "ait/comm/shared_memory.h"
#include "ait/comm/tcp_store.h"
#include "comm/find_hosts.h"
#include "comm/host_layout.h"

namespace ait::inline v0 {
namespace {

using internal::HostLayout;

constexpr std::string_view kKey = "hosts";  // in the store

/// Both providers: they differ in their names and in what they do where one transport is enough.
class HostsProvider final : public TransportProvider {
 public:
  HostsProvider(std::string_view name, HierarchicalOptions options)
      : name_(name), options_(std::move(options)) {
    if (options_.inside.log == nullptr) options_.inside.log = options_.log;
  }

  std::string_view name() const override { return name_; }

  StatusOr<std::unique_ptr<Store>> JoinAgentStore(const LaunchInfo& launch,
                                                  Deadline deadline) override {
    AIT_RETURN_IF_ERROR(CheckBetween());
    return options_.between->JoinAgentStore(launch, deadline);
  }

  StatusOr<std::unique_ptr<Transport>> Connect(const LaunchInfo& launch,
                                               std::shared_ptr<TcpStore> store,
                                               Deadline deadline) override {
    AIT_RETURN_IF_ERROR(CheckBetween());
    AIT_ASSIGN_OR_RETURN(const std::string identity, HostIdentity());
    AIT_ASSIGN_OR_RETURN(std::vector<int> hosts,
                         internal::FindHosts(*store, std::string(kKey), launch.rank, launch.size,
                                             identity, deadline));
    const HostLayout layout = HostLayout::Of(hosts);
    const bool is_one_host = layout.host_count() == 1;
    const bool is_one_each = layout.host_count() == layout.size();
    const std::string_view chosen = is_one_host   ? "shared-memory"
                                    : is_one_each ? options_.between->name()
                                                  : "hierarchical";
    Log(options_.log, Severity::kInfo, "comm",
        StrCat(chosen, ": ", internal::DescribeHosts(layout)));
    const auto self = static_cast<std::size_t>(launch.rank.value());
    const int host = layout.host_of[self];
    const auto local_size = static_cast<int>(layout.hosts[static_cast<std::size_t>(host)].size());
    std::unique_ptr<Transport> inside, between;
    if (is_one_host || local_size > 1) {
      AIT_ASSIGN_OR_RETURN(
          inside, JoinSharedMemory(*store, StrCat(kKey, "/", host), Rank(layout.local_of[self]),
                                   WorldSize(local_size), deadline, options_.inside));
    }
    if (is_one_host) return inside;
    AIT_ASSIGN_OR_RETURN(between, options_.between->Connect(launch, store, deadline));
    if (is_one_each) return between;
    return JoinHosts({.host_of_rank = std::move(hosts),
                      .inside = std::move(inside),
                      .between = std::move(between),
                      .store = std::move(store),
                      .key = std::string(kKey)},
                     deadline,
                     {.wire = options_.wire, .chunk = options_.chunk, .log = options_.log});
  }

 private:
  Status CheckBetween() const {
    if (options_.between != nullptr) return OkStatus();
    return InvalidArgumentError("HierarchicalOptions: `between` is missing; give what connects ",
                                "the hosts, such as Gloo() of ait/tensor/gloo.h");
  }

  const std::string_view name_;
  HierarchicalOptions options_;
};

}  // namespace

std::shared_ptr<TransportProvider> Hierarchical(HierarchicalOptions options) {
  return std::make_shared<HostsProvider>("hierarchical", std::move(options));
}

std::shared_ptr<TransportProvider> Automatic(HierarchicalOptions options) {
  return std::make_shared<HostsProvider>("automatic", std::move(options));
}

}  // namespace ait::inline v0

// SPDX-License-Identifier: Apache-2.0
#include "ait/tensor/gloo.h"

#include <utility>
#include <vector>

#include "ait/comm/tcp_store.h"
#include "ait/comm/transport.h"
#include "comm/own_thread.h"
#include "tensor/gloo_group.h"
#include "tensor/gloo_hub.h"
#include "tensor/gloo_link.h"
#include "tensor/gloo_store.h"

namespace ait::inline v0 {
namespace {

using internal::GlooDevice;
using internal::GlooGroup;
using internal::GlooHub;

class GlooTransport final : public Transport {
 public:
  GlooTransport(std::shared_ptr<TcpStore> store, std::shared_ptr<GlooHub> hub,
                std::shared_ptr<GlooGroup> group)
      : store_(std::move(store)), hub_(std::move(hub)), group_(std::move(group)) {}

  ~GlooTransport() override {
    // A callback on one of the threads that end here may have dropped the communicator.
    internal::RunOffOwnThreads(
        [store = std::move(store_), hub = std::move(hub_), group = std::move(group_)]() mutable {
          group->Close();
          // In this order: the hub uses the store, and its thread may hold the group for a moment.
          group.reset();
          hub.reset();
          store.reset();
        });
  }

  std::string_view name() const override { return "gloo"; }
  Rank rank() const override { return group_->options().rank; }
  WorldSize size() const override {
    return WorldSize(static_cast<int>(group_->options().members.size()));
  }
  Work Start(Operation operation) override { return group_->Start(std::move(operation)); }
  void Abort(const Status& reason) override { group_->Abort(reason); }

  StatusOr<std::unique_ptr<Transport>> Subgroup(std::span<const Rank> members, std::uint64_t id,
                                                Deadline deadline) override {
    GlooGroup::Options options = group_->options();
    options.name = StrCat(options.name, ".", id);
    const std::vector<Rank> parents = std::exchange(options.members, {});
    for (const Rank member : members) {
      if (member == rank()) options.rank = Rank(static_cast<int>(options.members.size()));
      options.members.push_back(parents[static_cast<std::size_t>(member.value())]);
    }
    AIT_ASSIGN_OR_RETURN(std::shared_ptr<GlooGroup> group,
                         GlooGroup::Create(*hub_, std::move(options), deadline));
    return std::make_unique<GlooTransport>(store_, hub_, std::move(group));
  }

 private:
  std::shared_ptr<TcpStore> store_;
  std::shared_ptr<GlooHub> hub_;
  std::shared_ptr<GlooGroup> group_;
};

bool IsLoopbackAddress(std::string_view address) {
  return address == "::1" || address.substr(0, 4) == "127.";
}

class GlooProvider final : public TransportProvider {
 public:
  explicit GlooProvider(GlooOptions options) : options_(std::move(options)) {}

  std::string_view name() const override { return "gloo"; }

  StatusOr<std::unique_ptr<Store>> JoinAgentStore(const LaunchInfo& launch,
                                                  Deadline deadline) override {
    return internal::JoinAgent(launch, deadline);
  }

  StatusOr<std::unique_ptr<Transport>> Connect(const LaunchInfo& launch,
                                               std::shared_ptr<TcpStore> store,
                                               Deadline deadline) override {
    if (options_.segment < KiB(4) || options_.segment > MiB(64)) {
      return InvalidArgumentError("GlooOptions: a segment of ", options_.segment,
                                  " bytes; allowed are 4 KiB to 64 MiB");
    }
    const std::string& interface_name =
        options_.interface_name.empty() ? launch.interface_name : options_.interface_name;
    std::string address = store->local_address();
    if (address.empty()) address = "127.0.0.1";  // a world of one
    if (interface_name.empty() && launch.host_count != 1 && launch.local_size < launch.size &&
        IsLoopbackAddress(address)) {
      const int others = launch.size.value() - launch.local_size.value();
      return FailedPreconditionError(
          "rank ", launch.rank, " reaches rank 0 through the loopback interface (", address,
          "), but ",
          others == 1 ? std::string("1 rank is on another host")
                      : StrCat(others, " ranks are on other hosts"),
          "; set MASTER_ADDR to an address of rank 0's host, or GLOO_SOCKET_IFNAME");
    }
    AIT_ASSIGN_OR_RETURN(std::shared_ptr<GlooDevice> device,
                         GlooDevice::Create(interface_name, address));
    GlooGroup::Options options{.device = std::move(device),
                               .store = store,
                               .name = "world",
                               .rank = launch.rank,
                               .segment = options_.segment,
                               .log = options_.log};
    for (int rank = 0; rank < launch.size.value(); ++rank) options.members.push_back(Rank(rank));
    AIT_ASSIGN_OR_RETURN(std::shared_ptr<GlooHub> hub, GlooHub::Create(store));
    AIT_ASSIGN_OR_RETURN(std::shared_ptr<GlooGroup> group,
                         GlooGroup::Create(*hub, std::move(options), deadline));
    return std::make_unique<GlooTransport>(std::move(store), std::move(hub), std::move(group));
  }

 private:
  GlooOptions options_;
};

}  // namespace

std::shared_ptr<TransportProvider> Gloo(GlooOptions options) {
  return std::make_shared<GlooProvider>(std::move(options));
}

}  // namespace ait::inline v0

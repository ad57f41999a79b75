// SPDX-License-Identifier: Apache-2.0
#include "ait/tensor/gloo.h"

#include <utility>

#include "ait/comm/tcp_store.h"
#include "ait/comm/transport.h"
#include "comm/pair_transport.h"
#include "tensor/gloo_link.h"
#include "tensor/gloo_store.h"

namespace ait::inline v0 {
namespace {

using internal::GlooDevice;
using internal::PairGroup;

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
    if (address.empty()) address = "127.0.0.1";  // a world of one, or met by a name
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
    PairGroup::Options options{
        .engine = "gloo",
        .connect =
            [device = std::move(device)](const PairGroup::Options& group, Deadline until) {
              return internal::ConnectGloo({.device = device,
                                            .store = group.store,
                                            .name = group.name,
                                            .rank = group.rank,
                                            .members = group.members},
                                           until);
            },
        .store = std::move(store),
        .name = "world",
        .rank = launch.rank,
        .segment = options_.segment,
        .log = options_.log};
    for (int rank = 0; rank < launch.size.value(); ++rank) options.members.push_back(Rank(rank));
    return internal::ConnectPairs(std::move(options), deadline);
  }

 private:
  GlooOptions options_;
};

}  // namespace

std::shared_ptr<TransportProvider> Gloo(GlooOptions options) {
  return std::make_shared<GlooProvider>(std::move(options));
}

}  // namespace ait::inline v0

// SPDX-License-Identifier: Apache-2.0
// ait as a backend of c10d, and that as a transport of ait: the whole contract holds, on threads.
#include "tensor/c10d_support.h"
// Keep the order.
#include <netinet/in.h>
#include <sys/socket.h>

#include <map>
#include <mutex>

#include "ait/comm/tcp_store.h"
#include "contract/communicator_contract.h"
#include "support/status_matchers.h"

namespace ait::testing {
namespace {

/// A socket that listens on a free port of this host.
std::pair<int, std::uint16_t> Listen() {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), length), 0);
  EXPECT_EQ(listen(fd, 16), 0);
  getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length);
  return {fd, ntohs(address.sin_port)};
}

/// Thread groups by the name of the group of c10d that lies over them.
class Groups {
 public:
  C10dBackendPtr Take(const C10dGroup& group) {
    std::lock_guard lock(mutex_);
    auto& ranks = groups_[group.name];
    if (ranks.empty()) ranks = MakeThreadGroup(group.size(), {.timeout = kContractTimeout});
    return ToBackend(std::move(ranks[static_cast<std::size_t>(group.rank.value())]));
  }

 private:
  std::mutex mutex_;
  std::map<std::string, std::vector<std::shared_ptr<Communicator>>> groups_;
};

Status RunRank(const ContractCase& contract_case, const std::shared_ptr<Groups>& groups,
               const TcpStoreOptions& options) {
  AIT_ASSIGN_OR_RETURN(std::shared_ptr<TcpStore> store, TcpStore::Create(options));
  const auto take = [groups](const C10dGroup& group, const C10dStorePtr&) {
    return groups->Take(group);
  };
  C10dGroup world{.name = "world", .rank = options.rank};
  for (int r = 0; r < options.size.value(); ++r) world.members.push_back(Rank(r));
  AIT_ASSIGN_OR_RETURN(auto transport, FromBackend(groups->Take(world), std::move(store), take));
  return contract_case.body(std::make_shared<Communicator>(
      std::move(transport), CommunicatorOptions{.timeout = kContractTimeout}));
}

std::vector<Status> RunOnThreads(const ContractCase& contract_case, WorldSize size) {
  const auto [fd, port] = Listen();
  const auto groups = std::make_shared<Groups>();
  std::vector<Status> statuses(static_cast<std::size_t>(size.value()));
  EXPECT_EQ(OnThreads(size.value(),
                      [&, fd = fd, port = port](int rank) {
                        statuses[static_cast<std::size_t>(rank)] =
                            RunRank(contract_case, groups,
                                    {.rank = Rank(rank),
                                     .size = size,
                                     .host = "127.0.0.1",
                                     .port = port,
                                     .listen_fd = rank == 0 ? fd : -1,
                                     .run_id = "round trip"});
                      }),
            "");
  return statuses;
}

TEST(FromBackend, RefusesNothingAndSplitsOnlyWithAFactory) {
  EXPECT_EQ(FromBackend(nullptr, nullptr).status().code(), StatusCode::kInvalidArgument);
  ContractCase one{"split", [](std::shared_ptr<Communicator> communicator) {
                     const Status status = communicator->Split(0, 0).status();
                     return status.code() == StatusCode::kUnimplemented &&
                                    Message(status).find("factory") != std::string::npos
                                ? OkStatus()
                                : InternalError("expected Unimplemented, saw ", status.ToString());
                   }};
  const auto [fd, port] = Listen();
  EXPECT_EQ(OnThreads(2,
                      [&, fd = fd, port = port](int rank) {
                        static auto ranks = MakeThreadGroup(WorldSize(2));
                        ASSERT_OK_AND_ASSIGN(std::shared_ptr<TcpStore> store,
                                             TcpStore::Create({.rank = Rank(rank),
                                                               .size = WorldSize(2),
                                                               .host = "127.0.0.1",
                                                               .port = port,
                                                               .listen_fd = rank == 0 ? fd : -1,
                                                               .run_id = "no factory"}));
                        ASSERT_OK_AND_ASSIGN(
                            auto transport,
                            FromBackend(ToBackend(ranks[static_cast<std::size_t>(rank)]), store));
                        EXPECT_OK(one.body(std::make_shared<Communicator>(std::move(transport))));
                      }),
            "");
}

}  // namespace
}  // namespace ait::testing

AIT_COMMUNICATOR_CONTRACT(RoundTrip, RunOnThreads, CommunicatorContractCases(), 2, 3);

// SPDX-License-Identifier: Apache-2.0
#include "comm/world_hosts.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "comm/tcp_store_frame.h"
#include "comm/tcp_store_socket.h"
#include "support/status_matchers.h"

namespace ait::internal {
namespace {

using std::chrono::seconds;

TEST(WorldHosts, OwnPlaceIsTheSameForEveryRankOfAHost) {
  const RankPlace a = OwnPlace("127.0.0.1"), b = OwnPlace("10.0.0.1");
  EXPECT_EQ(a.host, b.host);
  EXPECT_GT(a.host.size(), 36u) << "a boot id and more";
  EXPECT_FALSE(a.cpus.empty());
}

TEST(WorldHosts, GroupsRanksInTheOrderOfTheFirstOfEachHost) {
  const auto hosts = HostsOf({{.host = "b", .name = "bee", .address = "10.0.0.2"},
                              {.host = "a", .name = "ant", .address = "10.0.0.1"},
                              {.host = "b", .name = "bee", .address = "10.0.0.2"}});
  ASSERT_EQ(hosts.size(), 2u);
  EXPECT_EQ(hosts[0].name, "bee");
  EXPECT_EQ(hosts[0].ranks, (std::vector{Rank(0), Rank(2)}));
  EXPECT_EQ(hosts[1].address, "10.0.0.1");
}

TEST(WorldHosts, DividesCpusAmongTheRanksThatShareThem) {
  const std::vector<RankPlace> shared = {
      {.host = "a", .cpus = "0-7"}, {.host = "a", .cpus = "0-7"}, {.host = "b", .cpus = "0-7"}};
  EXPECT_EQ(ThreadsOf(shared, Rank(0)), 4);
  EXPECT_EQ(ThreadsOf(shared, Rank(2)), 8);
  const std::vector<RankPlace> bound = {{.host = "a", .cpus = "0-3"}, {.host = "a", .cpus = "4-7"}};
  EXPECT_EQ(ThreadsOf(bound, Rank(1)), 4);
  const std::vector<RankPlace> limited = {{.host = "a", .cpus = "0-63", .quota = "4"},
                                          {.host = "a", .cpus = "0-63", .quota = "4"}};
  EXPECT_EQ(ThreadsOf(limited, Rank(0)), 2);
  EXPECT_EQ(ThreadsOf({{.host = "a", .cpus = ""}}, Rank(0)), 1) << "unknown";
  EXPECT_EQ(ThreadsOf({{.host = "a", .cpus = "0"}, {.host = "a", .cpus = "0"}}, Rank(0)), 1);
}

TEST(WorldHosts, AllRanksGetThePlacesOfAll) {
  constexpr int kRanks = 5;
  const std::string name = StrCat("unix:ait-places-", getpid());
  std::vector<std::future<StatusOr<std::vector<RankPlace>>>> ranks;
  for (int rank = kRanks - 1; rank >= 0; --rank) {
    ranks.push_back(std::async(std::launch::async, [=]() -> StatusOr<std::vector<RankPlace>> {
      const LaunchInfo launch{.rank = Rank(rank), .size = WorldSize(kRanks)};
      AIT_ASSIGN_OR_RETURN(
          const auto store,
          TcpStore::Create(
              {.rank = launch.rank, .size = launch.size, .host = name, .timeout = seconds(20)}));
      return ExchangePlaces(*store, launch,
                            {.host = StrCat("h", rank % 2), .name = StrCat("name ", rank)},
                            Deadline::After(seconds(20)));
    }));
  }
  for (auto& rank : ranks) {
    ASSERT_OK_AND_ASSIGN(const std::vector<RankPlace> places, rank.get());
    ASSERT_EQ(places.size(), static_cast<std::size_t>(kRanks));
    EXPECT_EQ(places[3].name, "name 3");
    EXPECT_EQ(HostsOf(places).size(), 2u);
  }
}

TEST(WorldHosts, NamesARankThatDiesMeanwhile) {
  const SocketFd listener = *Listen("127.0.0.1", 0);
  const std::uint16_t port = *LocalPort(listener.get());
  auto one = std::async(std::launch::async, [=] {  // says hello, and is gone as soon as all came
    const SocketFd fd = *ConnectOnce("127.0.0.1", port, Deadline::After(seconds(10)));
    std::string hello;
    AppendFrame({.type = FrameType::kHello,
                 .id = kHelloMagic,
                 .number = (std::int64_t{1} << 32) | 2,
                 .value = "pid 1 on test"},
                hello);
    EXPECT_OK(SendAll(fd.get(), hello, Deadline::After(seconds(10))));
    char welcome[1];  // that it was let in: rank 0 is there already
    PollOne(fd.get(), POLLIN, Deadline::After(seconds(10)));
    EXPECT_EQ(recv(fd.get(), welcome, 1, 0), 1);
    std::this_thread::sleep_for(std::chrono::milliseconds(300));  // and that all have joined
  });
  const LaunchInfo launch{.rank = Rank(0), .size = WorldSize(2)};
  ASSERT_OK_AND_ASSIGN(const auto store, TcpStore::Create({.rank = launch.rank,
                                                           .size = launch.size,
                                                           .host = "127.0.0.1",
                                                           .port = port,
                                                           .listen_fd = dup(listener.get()),
                                                           .timeout = seconds(20)}));
  EXPECT_THAT(ExchangePlaces(*store, launch, {.host = "h"}, Deadline::After(seconds(60))),
              ::ait::testing::StatusIs(StatusCode::kUnavailable,
                                       ::testing::HasSubstr("rank 1 died while the ranks told")));
  one.get();
}

TEST(WorldHosts, NamesTheInterfaceOfAnAddress) {
  EXPECT_EQ(InterfaceOf("127.0.0.1"), "lo");
  EXPECT_EQ(InterfaceOf("192.0.2.77"), "");
  EXPECT_OK(CheckInterface("lo"));
}

}  // namespace
}  // namespace ait::internal

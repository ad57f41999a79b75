// SPDX-License-Identifier: Apache-2.0
#include "ait/tensor/gloo.h"

#include <unistd.h>

#include <future>
#include <vector>

#include "ait/comm/tcp_store.h"
#include "ait/comm/transport.h"
#include "comm/tcp_store_socket.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

using Connected = StatusOr<std::unique_ptr<Transport>>;

LaunchInfo Place(int rank, int size, int local_size) {
  LaunchInfo launch;
  launch.rank = Rank(rank);
  launch.size = WorldSize(size);
  launch.local_size = WorldSize(local_size);
  return launch;
}

/// Connects two ranks, each on a thread, over the loopback interface.
std::vector<Connected> ConnectTwo(int local_size, const GlooOptions& options = {}) {
  const internal::SocketFd socket = *internal::Listen("127.0.0.1", 0);
  const std::uint16_t port = *internal::LocalPort(socket.get());
  std::vector<std::future<Connected>> futures;
  for (int rank : {0, 1}) {
    const int fd = rank == 0 ? dup(socket.get()) : -1;
    futures.push_back(std::async(std::launch::async, [=]() -> Connected {
      AIT_ASSIGN_OR_RETURN(std::shared_ptr<TcpStore> store, TcpStore::Create({.rank = Rank(rank),
                                                                              .size = WorldSize(2),
                                                                              .host = "127.0.0.1",
                                                                              .port = port,
                                                                              .listen_fd = fd}));
      return Gloo(options)->Connect(Place(rank, 2, local_size), std::move(store),
                                    Deadline::After(std::chrono::seconds(30)));
    }));
  }
  std::vector<Connected> result;
  for (auto& future : futures) result.push_back(future.get());
  return result;
}

TEST(Gloo, ConnectsAndSums) {
  std::vector<Connected> ends = ConnectTwo(2, {.segment = KiB(4)});
  std::vector<std::future<std::vector<float>>> sums;
  for (Connected& end : ends) {
    ASSERT_OK(end);
    sums.push_back(std::async(std::launch::async, [&end] {
      Communicator communicator(*std::move(end));
      EXPECT_EQ(communicator.transport_name(), "gloo");
      std::vector<float> x(100001, static_cast<float>(1 + communicator.rank().value()));
      EXPECT_OK(communicator.AllReduce(View(x), ReduceOp::kSum).Wait());
      EXPECT_OK(communicator.Barrier().Wait());
      return x;
    }));
  }
  for (auto& sum : sums) EXPECT_EQ(sum.get(), std::vector<float>(100001, 3.0f));
}

TEST(Gloo, RefusesTheLoopbackInterfaceWithRemotePeers) {
  for (const Connected& end : ConnectTwo(1)) {
    EXPECT_THAT(end, StatusIs(StatusCode::kFailedPrecondition,
                              AllOf(HasSubstr("127.0.0.1"), HasSubstr("1 ranks are on other"))));
  }
}

TEST(Gloo, NamesAnInterfaceThatDoesNotExist) {
  for (const Connected& end : ConnectTwo(2, {.interface_name = "nosuch0"})) {
    EXPECT_THAT(end, StatusIs(StatusCode::kFailedPrecondition,
                              AllOf(HasSubstr("nosuch0"), HasSubstr("GLOO_SOCKET_IFNAME"))));
  }
}

TEST(Gloo, RefusesSegmentsOutOfRange) {
  for (const Bytes segment : {Bytes(0), Bytes(100), GiB(1)}) {
    for (const Connected& end : ConnectTwo(2, {.segment = segment})) {
      EXPECT_THAT(end, StatusIs(StatusCode::kInvalidArgument, HasSubstr("segment")));
    }
  }
}

}  // namespace
}  // namespace ait

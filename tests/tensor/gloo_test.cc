// SPDX-License-Identifier: Apache-2.0
#include "ait/tensor/gloo.h"

#include <unistd.h>

#include <future>
#include <mutex>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "ait/comm/tcp_store.h"
#include "ait/comm/transport.h"
#include "comm/tcp_store_socket.h"
#include "support/status_matchers.h"
#include "tensor/gloo_store.h"

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

TEST(Gloo, ACancelMayComeWhileTheGroupCloses) {
  for (int round = 0; round < 10; ++round) {
    std::vector<Connected> ends = ConnectTwo(2);
    for (const Connected& end : ends) ASSERT_OK(end);
    std::vector<float> x(8);
    auto communicator = std::make_unique<Communicator>(*std::move(ends[0]));
    const Work barrier = communicator->Barrier();
    const Work message = communicator->Receive(View(x), Rank(1));
    std::thread canceller([&] {
      message.Cancel();
      barrier.Cancel();
    });
    communicator.reset();
    canceller.join();
    EXPECT_FALSE(barrier.Wait().ok());
    EXPECT_FALSE(message.Wait().ok());
  }
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

/// Keeps what is logged.
class Lines final : public LogSink {
 public:
  void Write(Severity, std::string_view, std::string_view message) override {
    std::lock_guard lock(mutex_);
    text_ += StrCat(message, "\n");
  }
  std::string text() {
    std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  std::mutex mutex_;
  std::string text_;
};

TEST(Gloo, LogsWhyAGroupEnded) {
  Lines log;
  {
    std::vector<Connected> ends = ConnectTwo(2, {.log = &log});
    for (Connected& end : ends) ASSERT_OK(end);
    (*ends[1])->Abort(InternalError("the disk is full"));
    std::vector<float> x(4);
    Communicator communicator(*std::move(ends[0]));
    EXPECT_THAT(communicator.AllReduce(View(x), ReduceOp::kSum).Wait(),
                StatusIs(StatusCode::kAborted, HasSubstr("the disk is full")));
    ends.pop_back();  // first: rank 0 serves the store
  }
  EXPECT_THAT(log.text(),
              AllOf(HasSubstr("rank 0 of group world: ended"), HasSubstr("the disk is full")));
}

TEST(Gloo, ThousandsOfEmptyMessagesOneWayKeepTheirOrder) {
  std::vector<Connected> ends = ConnectTwo(2);
  std::vector<std::future<void>> ranks;
  for (Connected& end : ends) {
    ASSERT_OK(end);
    ranks.push_back(std::async(std::launch::async, [&end] {
      Communicator communicator(*std::move(end));
      std::int32_t word = 0;
      for (std::int32_t i = 0; i < 500; ++i) {
        const std::span<std::int32_t> message(&word, i % 2 == 0 ? 0 : 1);
        if (communicator.rank() == Rank(0)) {
          word = i;
          EXPECT_OK(communicator.Send(View(message), Rank(1)).Wait());
        } else {
          EXPECT_OK(communicator.Receive(View(message), Rank(0)).Wait());
          EXPECT_EQ(word, i % 2 == 0 ? std::max(i - 1, 0) : i);
        }
      }
      EXPECT_OK(communicator.Barrier().Wait());
    }));
  }
  for (auto& rank : ranks) rank.get();
}

TEST(Gloo, ManyPayloadsAtOnceAllArrive) {
  std::vector<Connected> ends = ConnectTwo(2);
  std::vector<std::future<void>> ranks;
  for (Connected& end : ends) {
    ASSERT_OK(end);
    ranks.push_back(std::async(std::launch::async, [&end] {
      Communicator communicator(*std::move(end));
      const bool sends = communicator.rank() == Rank(0);
      std::vector<std::vector<int>> data(100, std::vector<int>(1000, sends ? 7 : 0));
      std::vector<Work> works;
      for (std::uint32_t tag = 0; tag < data.size(); ++tag) {
        works.push_back(sends ? communicator.Send(View(data[tag]), Rank(1), tag)
                              : communicator.Receive(View(data[tag]), Rank(0), tag));
      }
      for (const Work& work : works) EXPECT_OK(work.Wait());
      for (const auto& part : data) EXPECT_EQ(part, std::vector<int>(1000, 7));
      EXPECT_OK(communicator.Barrier().Wait());
    }));
  }
  for (auto& rank : ranks) rank.get();
}

TEST(Gloo, TheAgentsStoreTellsWhichKeyNobodySet) {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  const auto agent = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
  LaunchInfo launch;
  launch.master_address = "127.0.0.1";
  launch.master_port = agent->getPort();
  ASSERT_OK_AND_ASSIGN(auto store,
                       internal::JoinAgent(launch, Deadline::After(std::chrono::seconds(20))));
  EXPECT_THAT(store->Get("missing", Deadline::After(std::chrono::milliseconds(50))),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("\"missing\"")));
}

TEST(Gloo, RefusesTheLoopbackInterfaceWithRemotePeers) {
  for (const Connected& end : ConnectTwo(1)) {
    EXPECT_THAT(end,
                StatusIs(StatusCode::kFailedPrecondition,
                         AllOf(HasSubstr("127.0.0.1"), HasSubstr("1 rank is on another host"))));
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

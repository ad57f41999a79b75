// SPDX-License-Identifier: Apache-2.0
#include "ait/comm/tcp_store.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <random>
#include <thread>

#include "comm/tcp_store_frame.h"
#include "comm/tcp_store_socket.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::IsOk;
using ::ait::testing::StatusIs;
using internal::Frame;
using internal::FrameType;
using internal::SocketFd;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Joined = StatusOr<std::unique_ptr<TcpStore>>;

/// A socket that listens on the loopback interface, as a launcher hands it to rank 0.
struct Listener {
  Listener() : fd(dup(socket.get())), port(*internal::LocalPort(fd)) {}
  SocketFd socket = *internal::Listen("127.0.0.1", 0);
  int fd;  // to give away
  std::uint16_t port;
};

TcpStoreOptions Options(const Listener& listener, int rank, int size) {
  return {.rank = Rank(rank),
          .size = WorldSize(size),
          .host = "127.0.0.1",
          .port = listener.port,
          .listen_fd = rank == 0 ? listener.fd : -1,
          .run_id = "run",
          .timeout = seconds(20)};
}

/// Runs `Create` with each options on a thread of its own.
std::vector<Joined> Join(const std::vector<TcpStoreOptions>& all) {
  std::vector<std::future<Joined>> futures;
  for (const TcpStoreOptions& options : all) {
    futures.push_back(
        std::async(std::launch::async, [options] { return TcpStore::Create(options); }));
  }
  std::vector<Joined> results;
  for (auto& future : futures) results.push_back(future.get());
  return results;
}

/// Stores of all ranks, of which rank 0's goes last, so that it need not wait for goodbyes.
struct Stores : std::vector<std::unique_ptr<TcpStore>> {
  Stores() = default;
  Stores(Stores&&) = default;
  ~Stores() {
    while (!empty()) pop_back();
  }
};

Stores JoinAll(int size) {
  Listener listener;
  std::vector<TcpStoreOptions> all;
  for (int rank = 0; rank < size; ++rank) all.push_back(Options(listener, rank, size));
  Stores stores;
  for (Joined& joined : Join(all)) {
    EXPECT_THAT(joined, IsOk());
    if (joined.ok()) stores.push_back(*std::move(joined));
  }
  return stores;
}

/// A rank played by the test itself: it says hello, and may die or babble.
class RawRank {
 public:
  RawRank(std::uint16_t port, int rank, int size, std::string run_id = "run")
      : fd_(*internal::ConnectOnce("127.0.0.1", port, Deadline::After(seconds(10)))) {
    std::string hello;
    internal::AppendFrame({.type = FrameType::kHello,
                           .id = internal::kHelloMagic,
                           .number = (std::int64_t{rank} << 32) | size,
                           .key = std::move(run_id),
                           .value = "pid 1 on test"},
                          hello);
    Say(hello);
  }
  void Say(std::string_view bytes) {
    internal::SendAll(fd_.get(), bytes, Deadline::After(seconds(10))).IgnoreError();
  }
  /// True once the server has closed the connection.
  bool ClosedByServer() {
    char bytes[256];
    while (internal::PollOne(fd_.get(), POLLIN, Deadline::After(seconds(10)))) {
      if (recv(fd_.get(), bytes, sizeof(bytes), 0) <= 0) return true;
    }
    return false;
  }
  void Die() { fd_.Close(); }

 private:
  SocketFd fd_;
};

/// Waits up to ten seconds until `condition` holds.
bool Eventually(const std::function<bool()>& condition) {
  const Deadline deadline = Deadline::After(seconds(10));
  while (!condition()) {
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return true;
}

TEST(TcpStore, SharesKeysAmongAllRanks) {
  auto stores = JoinAll(3);
  ASSERT_EQ(stores.size(), 3U);
  EXPECT_OK(stores[1]->Set("key", std::string("\0binary", 7)));
  for (const auto& store : stores) {
    EXPECT_EQ(*store->Get("key", Deadline::After(seconds(5))), std::string("\0binary", 7));
    EXPECT_TRUE(*store->Contains("key"));
    EXPECT_FALSE(*store->Contains("other"));
  }
  EXPECT_EQ(*stores[0]->Add("n", 5), 5);
  EXPECT_EQ(*stores[2]->Add("n", -7), -2);
  EXPECT_OK(stores[0]->Set("text", "x"));
  EXPECT_THAT(stores[1]->Add("text", 1), StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_EQ(stores[1]->local_address(), "127.0.0.1");
  EXPECT_EQ(stores[0]->local_address(), "127.0.0.1");
}

TEST(TcpStore, ServesOneRankAlone) {
  ASSERT_OK_AND_ASSIGN(auto store, TcpStore::Create({.rank = Rank(0), .host = "127.0.0.1"}));
  EXPECT_GT(store->port(), 0);
  EXPECT_OK(store->Set("a", "1"));
  EXPECT_EQ(*store->Get("a", Deadline::Infinite()), "1");
}

TEST(TcpStore, GetWaitsUntilTheKeyIsSetOrTheDeadline) {
  auto stores = JoinAll(2);
  ASSERT_EQ(stores.size(), 2U);
  auto value =
      std::async(std::launch::async, [&] { return stores[1]->Get("late", Deadline::Infinite()); });
  EXPECT_OK(stores[0]->Set("late", "now"));
  EXPECT_EQ(*value.get(), "now");
  EXPECT_THAT(stores[1]->Get("never", Deadline::After(milliseconds(20))),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("\"never\"")));
}

TEST(TcpStore, OneClientServesManyThreads) {
  auto stores = JoinAll(2);
  ASSERT_EQ(stores.size(), 2U);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 8; ++thread) {
    threads.emplace_back([&, thread] {
      for (int i = 0; i < 50; ++i) {
        EXPECT_OK(stores[1]->Add("sum", 1));
        const std::string key = StrCat("k", thread, ".", i);
        EXPECT_OK(stores[1]->Set(key, key));
        EXPECT_EQ(*stores[0]->Get(key, Deadline::After(seconds(10))), key);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(*stores[0]->Add("sum", 0), 400);
}

TEST(TcpStore, NamesTheRanksThatDidNotComeOnAllThatDid) {
  Listener listener;
  std::vector<TcpStoreOptions> all;
  for (int rank : {0, 2}) all.push_back(Options(listener, rank, 4));
  for (TcpStoreOptions& options : all) options.timeout = milliseconds(300);
  for (const Joined& joined : Join(all)) {
    EXPECT_THAT(joined, StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("ranks 1, 3 of 4")));
  }
}

TEST(TcpStore, ARankWhoseDeadlineIsFirstNamesThemToo) {
  Listener listener;
  std::vector<TcpStoreOptions> all = {Options(listener, 0, 3), Options(listener, 1, 3)};
  all[0].timeout = seconds(2);
  all[1].timeout = milliseconds(200);
  const std::vector<Joined> joined = Join(all);
  EXPECT_THAT(joined[1], StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("rank 2 of 3")));
  EXPECT_THAT(joined[0], StatusIs(StatusCode::kUnavailable, HasSubstr("rank 1")));
}

TEST(TcpStore, NamesRankZeroIfNothingServes) {
  std::uint16_t port;
  {
    Listener listener;  // a port that is free again
    close(listener.fd);
    port = listener.port;
  }
  EXPECT_THAT(TcpStore::Create({.rank = Rank(1),
                                .size = WorldSize(2),
                                .host = "127.0.0.1",
                                .port = port,
                                .timeout = milliseconds(200)}),
              StatusIs(StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("rank 0 of 2 did not come"), HasSubstr(StrCat(port)),
                             HasSubstr("refused"))));
}

TEST(TcpStore, NamesThatDoNotResolveAreTriedUntilTheDeadline) {
  EXPECT_THAT(TcpStore::Create({.rank = Rank(1),
                                .size = WorldSize(2),
                                .host = "no-such-host.invalid",
                                .port = 1,
                                .timeout = milliseconds(100)}),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("does not resolve")));
}

TEST(TcpStore, RankZeroMayStartLast) {
  std::uint16_t port;
  {
    Listener listener;
    close(listener.fd);
    port = listener.port;
  }
  TcpStoreOptions options{.rank = Rank(1),
                          .size = WorldSize(2),
                          .host = "127.0.0.1",
                          .port = port,
                          .timeout = seconds(20)};
  auto first = std::async(std::launch::async, [&] { return TcpStore::Create(options); });
  std::this_thread::sleep_for(milliseconds(50));
  TcpStoreOptions server = options;
  server.rank = Rank(0);
  const Joined joined = TcpStore::Create(server);
  EXPECT_OK(joined);
  EXPECT_OK(first.get());
}

TEST(TcpStore, ServesOverIpv6WhereTheHostHasIt) {
  const bool has_ipv6 = access("/proc/net/if_inet6", R_OK) == 0 && internal::Listen("::1", 0).ok();
  const std::string host = has_ipv6 ? "::1" : "127.0.0.1";
  ASSERT_OK_AND_ASSIGN(SocketFd socket, internal::Listen(host, 0));
  const std::uint16_t port = *internal::LocalPort(socket.get());
  const auto joined = Join({{.rank = Rank(0),
                             .size = WorldSize(2),
                             .host = host,
                             .port = port,
                             .listen_fd = dup(socket.get())},
                            {.rank = Rank(1), .size = WorldSize(2), .host = host, .port = port}});
  ASSERT_OK(joined[0]);
  ASSERT_OK(joined[1]);
  EXPECT_EQ((*joined[1])->local_address(), host);
}

TEST(TcpStore, RefusesStrayRanksAndGoesOn) {
  Listener listener;
  auto zero =
      std::async(std::launch::async, [&] { return TcpStore::Create(Options(listener, 0, 3)); });
  auto one =
      std::async(std::launch::async, [&] { return TcpStore::Create(Options(listener, 1, 3)); });
  // Let rank 1 be there first.
  TcpStoreOptions stray = Options(listener, 1, 3);
  stray.timeout = seconds(5);
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_THAT(TcpStore::Create(stray),
              StatusIs(StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("rank 1"), HasSubstr("joined twice"), HasSubstr("pid "))));
  stray = Options(listener, 2, 3);
  stray.run_id = "older";
  EXPECT_THAT(TcpStore::Create(stray),
              StatusIs(StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("\"older\""), HasSubstr("\"run\""))));
  stray = Options(listener, 2, 4);
  EXPECT_THAT(TcpStore::Create(stray),
              StatusIs(StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("world size 4"), HasSubstr("has 3"))));
  auto two =
      std::async(std::launch::async, [&] { return TcpStore::Create(Options(listener, 2, 3)); });
  const Joined first = zero.get();
  EXPECT_OK(first);
  EXPECT_OK(one.get());
  EXPECT_OK(two.get());
}

TEST(TcpStore, AFailedJoinTellsWhoWasRefused) {
  Listener listener;
  TcpStoreOptions options = Options(listener, 0, 2);
  options.timeout = milliseconds(500);
  auto zero = std::async(std::launch::async, [&] { return TcpStore::Create(options); });
  RawRank stray(listener.port, 1, 2, "older");
  EXPECT_TRUE(stray.ClosedByServer());
  EXPECT_THAT(zero.get(), StatusIs(StatusCode::kDeadlineExceeded,
                                   AllOf(HasSubstr("rank 1 of 2 did not join"),
                                         HasSubstr("refused"), HasSubstr("older"))));
}

TEST(TcpStore, ARankThatDiesWhileJoiningFailsTheOthersAtOnce) {
  Listener listener;
  auto zero =
      std::async(std::launch::async, [&] { return TcpStore::Create(Options(listener, 0, 3)); });
  RawRank(listener.port, 1, 3).Die();
  EXPECT_THAT(zero.get(), StatusIs(StatusCode::kUnavailable, HasSubstr("rank 1")));
}

TEST(TcpStore, SurvivesGarbageBeforeAndAfterTheHello) {
  Listener listener;
  auto zero =
      std::async(std::launch::async, [&] { return TcpStore::Create(Options(listener, 0, 3)); });
  std::mt19937 random(7);
  for (int i = 0; i < 60; ++i) {
    SocketFd fd = *internal::ConnectOnce("127.0.0.1", listener.port, Deadline::After(seconds(5)));
    std::string bytes(1 + random() % 3000, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random());
    if (i % 3 == 0) bytes = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
    internal::SendAll(fd.get(), bytes, Deadline::After(seconds(5))).IgnoreError();
  }
  RawRank one(listener.port, 1, 3);
  auto last =
      std::async(std::launch::async, [&] { return TcpStore::Create(Options(listener, 2, 3)); });
  const Joined first = zero.get();
  ASSERT_OK(first);
  const Joined two = last.get();
  ASSERT_OK(two);
  one.Say(std::string("\xff\xff\xff\xff garbage", 12));  // a rank gone mad is taken for dead
  EXPECT_TRUE(one.ClosedByServer());
  EXPECT_TRUE(Eventually([&] { return !(*two)->departed().empty(); }));
  EXPECT_THAT((*two)->departed(), ElementsAre(Rank(1)));
  EXPECT_OK((*two)->Set("still", "here"));
}

TEST(TcpStore, ManySilentStrangersDoNotKeepRanksOut) {
  Listener listener;
  auto zero =
      std::async(std::launch::async, [&] { return TcpStore::Create(Options(listener, 0, 2)); });
  std::vector<SocketFd> strangers;
  for (int i = 0; i < 300; ++i) {
    strangers.push_back(
        *internal::ConnectOnce("127.0.0.1", listener.port, Deadline::After(seconds(5))));
  }
  EXPECT_OK(TcpStore::Create(Options(listener, 1, 2)));
  EXPECT_OK(zero.get());
}

TEST(TcpStore, TellsEveryRankWhoDied) {
  Listener listener;
  auto zero =
      std::async(std::launch::async, [&] { return TcpStore::Create(Options(listener, 0, 4)); });
  auto three =
      std::async(std::launch::async, [&] { return TcpStore::Create(Options(listener, 3, 4)); });
  RawRank one(listener.port, 1, 4), two(listener.port, 2, 4);
  Joined first = zero.get(), last = three.get();
  ASSERT_OK(first);
  ASSERT_OK(last);
  std::atomic<int> told{-1};
  (*first)->OnDeparture([&](Rank rank) { told = rank.value(); });
  two.Die();
  EXPECT_TRUE(Eventually([&] { return told == 2; }));
  one.Die();
  EXPECT_TRUE(Eventually([&] { return told == 1; }));
  for (const Joined* store : {&first, &last}) {
    EXPECT_TRUE(Eventually([&] { return (**store)->departed().size() == 2; }));
    EXPECT_THAT((**store)->departed(), ElementsAre(Rank(2), Rank(1)));
  }
  // A later callback hears of all, an empty one of none.
  std::atomic<int> count{0};
  (*last)->OnDeparture([&](Rank) { ++count; });
  EXPECT_TRUE(Eventually([&] { return count == 2; }));
  (*last)->OnDeparture(nullptr);
}

TEST(TcpStore, LeavingIsNotDying) {
  auto stores = JoinAll(3);
  ASSERT_EQ(stores.size(), 3U);
  stores[1].reset();
  EXPECT_OK(stores[0]->Set("a", "1"));  // after the server has read the goodbye
  EXPECT_THAT(stores[0]->departed(), ElementsAre());
  EXPECT_THAT(stores[2]->departed(), ElementsAre());
  stores[0].reset();  // waits a second for rank 2, which stays
  EXPECT_THAT(stores[2]->Set("a", "1"), StatusIs(StatusCode::kUnavailable, HasSubstr("rank 0")));
  EXPECT_THAT(stores[2]->departed(), ElementsAre());
}

TEST(TcpStore, NoticesTheDeathOfRankZero) {
  Listener listener;
  auto one =
      std::async(std::launch::async, [&] { return TcpStore::Create(Options(listener, 1, 2)); });
  SocketFd server(accept(listener.socket.get(), nullptr, nullptr));
  std::string answer;
  internal::AppendFrame({.type = FrameType::kWelcome}, answer);
  internal::AppendFrame({.type = FrameType::kJoined}, answer);
  ASSERT_OK(internal::SendAll(server.get(), answer, Deadline::After(seconds(5))));
  const Joined joined = one.get();
  ASSERT_OK(joined);
  auto waiting =
      std::async(std::launch::async, [&] { return (*joined)->Get("never", Deadline::Infinite()); });
  std::this_thread::sleep_for(milliseconds(20));
  server.Close();
  EXPECT_THAT(waiting.get(), StatusIs(StatusCode::kUnavailable, HasSubstr("rank 0")));
  EXPECT_TRUE(Eventually([&] { return !(*joined)->departed().empty(); }));
  EXPECT_THAT((*joined)->departed(), ElementsAre(Rank(0)));
  close(listener.fd);
}

/// A server that says that all have joined, and never reads a word more.
class DeafServer {
 public:
  explicit DeafServer(milliseconds timeout) {
    TcpStoreOptions options = Options(listener_, 1, 2);
    options.timeout = timeout;
    auto one = std::async(std::launch::async, [&] { return TcpStore::Create(options); });
    connection_ = SocketFd(accept(listener_.socket.get(), nullptr, nullptr));
    std::string answer;
    internal::AppendFrame({.type = FrameType::kWelcome}, answer);
    internal::AppendFrame({.type = FrameType::kJoined}, answer);
    EXPECT_OK(internal::SendAll(connection_.get(), answer, Deadline::After(seconds(5))));
    joined = one.get();
    EXPECT_OK(joined);
  }
  ~DeafServer() {
    joined = InternalError("gone");
    close(listener_.fd);
  }
  Joined joined = InternalError("not yet");

 private:
  Listener listener_;
  SocketFd connection_;
};

TEST(TcpStore, HalfARequestIsTheLastOne) {
  DeafServer server(seconds(1));
  const std::string large(1000000, 'x');
  Status status;
  for (int i = 0; i < 200; ++i) {  // until no buffer between the two has room
    status = (*server.joined)->Set("k", large);
    if (status.code() != StatusCode::kDeadlineExceeded) break;
  }
  EXPECT_THAT(status, StatusIs(StatusCode::kUnavailable, HasSubstr("a part of a request")));
  EXPECT_THAT((*server.joined)->Contains("k"), StatusIs(StatusCode::kUnavailable));
}

TEST(TcpStore, AGetTellsAServerThatHangsFromAKeyThatNobodySet) {
  DeafServer server(seconds(1));
  EXPECT_THAT((*server.joined)->Get("k", Deadline::After(milliseconds(10))),
              StatusIs(StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("rank 0"), HasSubstr("did not answer"))));
}

TEST(TcpStore, ARequestInsideACallbackIsRefused) {
  auto stores = JoinAll(2);
  ASSERT_EQ(stores.size(), 2U);
  std::promise<Status> result;
  stores[1]->Watch(
      "w", [&](const std::string&) { result.set_value(stores[1]->Contains("w").status()); });
  EXPECT_OK(stores[0]->Set("w", "v"));
  EXPECT_THAT(result.get_future().get(),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("callback")));
  EXPECT_OK(stores[1]->Contains("w"));
}

TEST(TcpStore, MayBeDroppedInsideItsCallback) {
  auto stores = JoinAll(2);
  ASSERT_EQ(stores.size(), 2U);
  std::promise<void> dropped;
  stores[1]->Watch("w", [&](const std::string&) {
    stores[1].reset();
    dropped.set_value();
  });
  EXPECT_OK(stores[0]->Set("w", "v"));
  dropped.get_future().get();
  EXPECT_THAT(stores[0]->departed(), ElementsAre());
}

TEST(TcpStore, TellsThatAPortBelongsToAnotherService) {
  Listener listener;
  auto one =
      std::async(std::launch::async, [&] { return TcpStore::Create(Options(listener, 1, 2)); });
  SocketFd server(accept(listener.socket.get(), nullptr, nullptr));
  ASSERT_OK(internal::SendAll(server.get(), "HTTP/1.1 400 Bad Request\r\n\r\n",
                              Deadline::After(seconds(5))));
  EXPECT_THAT(one.get(),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("not a store of ait")));
  close(listener.fd);
}

TEST(TcpStore, NamesTheProcessThatHoldsThePort) {
  Listener listener;
  close(listener.fd);
  EXPECT_THAT(
      TcpStore::Create(
          {.rank = Rank(0), .size = WorldSize(2), .host = "127.0.0.1", .port = listener.port}),
      StatusIs(StatusCode::kFailedPrecondition,
               AllOf(HasSubstr(StrCat("port ", listener.port)), HasSubstr("in use"),
                     HasSubstr(StrCat("pid ", getpid())), HasSubstr("MASTER_PORT"))));
}

TEST(TcpStore, RefusesADescriptorThatDoesNotListen) {
  SocketFd fd(socket(AF_INET, SOCK_STREAM, 0));
  const TcpStoreOptions options{.rank = Rank(0), .listen_fd = fd.get()};
  EXPECT_THAT(TcpStore::Create(options),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("not a socket that listens")));
}

TEST(TcpStore, ClosesAnInheritedSocketAlsoIfItFails) {
  Listener listener;
  TcpStoreOptions options = Options(listener, 0, 2);
  options.timeout = milliseconds(0);
  EXPECT_THAT(TcpStore::Create(options), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_EQ(fcntl(listener.fd, F_GETFD), -1);
}

TEST(TcpStore, OnlyALoopbackHostInWordsKeepsOtherHostsOut) {
  const auto is_open = [](const std::string& host) {
    const SocketFd socket = *internal::Listen(host, 0);
    const std::string address = internal::LocalAddress(socket.get());
    return address == "::" || address == "0.0.0.0";
  };
  EXPECT_FALSE(is_open("127.0.0.1"));
  EXPECT_FALSE(is_open("localhost"));
  EXPECT_TRUE(is_open(""));
  // Resolves to 127.0.0.1, as the own name of a host of Debian does.
  EXPECT_TRUE(is_open("0x7f.1"));
}

TEST(TcpStore, RefusesOptionsThatDoNotFit) {
  for (const TcpStoreOptions& options : std::vector<TcpStoreOptions>{
           {.rank = Rank(2), .size = WorldSize(2)},
           {.rank = Rank(-1), .size = WorldSize(2)},
           {.rank = Rank(0), .size = WorldSize(0)},
           {.rank = Rank(1), .size = WorldSize(2), .host = "", .port = 1},
           {.rank = Rank(1), .size = WorldSize(2), .host = "h", .port = 0},
           {.rank = Rank(1), .size = WorldSize(2), .host = "h", .port = 1, .listen_fd = 3},
           {.rank = Rank(0), .run_id = std::string(256, 'x')},
           {.rank = Rank(0), .timeout = milliseconds(0)},
           {.rank = Rank(0), .answer_timeout = milliseconds(-1)}}) {
    EXPECT_THAT(TcpStore::Create(options), StatusIs(StatusCode::kInvalidArgument));
  }
}

TEST(TcpStore, RefusesValuesThatAreTooLong) {
  ASSERT_OK_AND_ASSIGN(auto store, TcpStore::Create({.rank = Rank(0), .host = "127.0.0.1"}));
  EXPECT_THAT(store->Set("k", std::string(2 << 20, 'x')), StatusIs(StatusCode::kInvalidArgument));
  const std::string large(1000000, 'x');
  EXPECT_OK(store->Set("k", large));
  EXPECT_EQ(*store->Get("k", Deadline::After(seconds(10))), large);
}

TEST(TcpStore, WatchFiresWhenTheKeyIsSet) {
  auto stores = JoinAll(2);
  ASSERT_EQ(stores.size(), 2U);
  std::promise<std::string> later, already;
  stores[1]->Watch("w", [&](std::string value) { later.set_value(std::move(value)); });
  const std::uint64_t none = stores[1]->Watch("w", [](std::string) { FAIL(); });
  stores[1]->Unwatch(none);
  EXPECT_OK(stores[0]->Set("w", "v"));
  EXPECT_EQ(later.get_future().get(), "v");
  const std::uint64_t fired =
      stores[0]->Watch("w", [&](std::string value) { already.set_value(std::move(value)); });
  EXPECT_EQ(already.get_future().get(), "v");
  stores[0]->Unwatch(fired);
}

}  // namespace
}  // namespace ait

// SPDX-License-Identifier: Apache-2.0
#include "ait/comm/world.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ait/comm/tcp_store.h"
#include "ait/comm/transport.h"
#include "comm/tcp_store_socket.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using internal::SocketFd;
using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

/// A transport that carries nothing: these tests are about finding each other.
class NullTransport final : public Transport {
 public:
  NullTransport(Rank rank, WorldSize size) : rank_(rank), size_(size) {}
  std::string_view name() const override { return "null"; }
  Rank rank() const override { return rank_; }
  WorldSize size() const override { return size_; }
  Work Start(Operation) override { return Work(UnimplementedError("null")); }
  StatusOr<std::unique_ptr<Transport>> Subgroup(std::span<const Rank>, std::uint64_t,
                                                Deadline) override {
    return UnimplementedError("null");
  }
  void Abort(const Status&) override {}

 private:
  Rank rank_;
  WorldSize size_;
};

/// One client's view of a store that others share.
class SharedStore final : public Store {
 public:
  explicit SharedStore(std::shared_ptr<Store> store) : store_(std::move(store)) {}
  Status Set(std::string_view key, std::string_view value) override {
    return store_->Set(key, value);
  }
  StatusOr<std::string> Get(std::string_view key, Deadline deadline) override {
    return store_->Get(key, deadline);
  }
  StatusOr<std::int64_t> Add(std::string_view key, std::int64_t amount) override {
    return store_->Add(key, amount);
  }
  StatusOr<bool> Contains(std::string_view key) override { return store_->Contains(key); }

 private:
  std::shared_ptr<Store> store_;
};

class NullProvider final : public TransportProvider {
 public:
  explicit NullProvider(std::shared_ptr<Store> agent = nullptr) : agent_(std::move(agent)) {}
  std::string_view name() const override { return "null"; }
  StatusOr<std::unique_ptr<Store>> JoinAgentStore(const LaunchInfo&, Deadline) override {
    return std::make_unique<SharedStore>(agent_);
  }
  StatusOr<std::unique_ptr<Transport>> Connect(const LaunchInfo& launch, std::shared_ptr<TcpStore>,
                                               Deadline) override {
    return std::make_unique<NullTransport>(launch.rank, launch.size);
  }

 private:
  std::shared_ptr<Store> agent_;
};

using MadeWorld = StatusOr<std::unique_ptr<World>>;

std::future<MadeWorld> Enter(const Env& env, std::shared_ptr<TransportProvider> transport,
                             milliseconds timeout = seconds(20)) {
  return std::async(std::launch::async, [=] {
    return World::FromEnvironment({.transport = transport, .env = env, .join_timeout = timeout});
  });
}

Env RankEnv(int rank, int size, std::uint16_t port) {
  Env env;
  env.rank = env.local_rank = StrCat(rank);
  env.world_size = env.local_world_size = StrCat(size);
  env.master_addr = "127.0.0.1";
  env.master_port = StrCat(port);
  return env;
}

/// A port that nobody listens at and that the system gives to nobody else meanwhile: a socket is
/// bound to it, which does not listen and lets another one do so.
class FreePort {
 public:
  FreePort() : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
  }
  std::uint16_t port() const { return *internal::LocalPort(socket_.get()); }

 private:
  SocketFd socket_;
};

TEST(World, OneProcessAloneNeedsNoNetwork) {
  ASSERT_OK_AND_ASSIGN(auto world, World::FromEnvironment({.env = Env{}}));
  EXPECT_EQ(world->size(), WorldSize(1));
  EXPECT_EQ(world->store(), nullptr);
  EXPECT_EQ(world->shard(), Shard{});
  std::vector<float> x{1, 2};
  EXPECT_OK(world->communicator()->AllReduce(View(x), ReduceOp::kSum).Wait());
  EXPECT_EQ(x[1], 2);
  EXPECT_THAT(world->Describe(), AllOf(StartsWith("launched by  nobody\n"), HasSubstr("network")));
}

TEST(World, OneProcessAloneTakesOnlyASocketThatListens) {
  Env env = RankEnv(0, 1, 1234);
  env.ait_run_id = "r";
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  const SocketFd out(ends[0]), in(ends[1]);
  env.ait_listen_fd = StrCat(in.get());
  EXPECT_OK(World::FromEnvironment({.env = env}));
  EXPECT_NE(fcntl(in.get(), F_GETFD), -1);  // somebody else's
  const int listener = internal::Listen("127.0.0.1", 0)->Release();
  env.ait_listen_fd = StrCat(listener);
  EXPECT_OK(World::FromEnvironment({.env = env}));
  EXPECT_EQ(fcntl(listener, F_GETFD), -1);
}

TEST(World, RefusesAContradictoryEnvironment) {
  Env env = RankEnv(2, 2, 1234);
  EXPECT_THAT(World::FromEnvironment({.env = env}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("RANK 2")));
}

TEST(World, NeedsATransportForMoreThanOneProcess) {
  EXPECT_THAT(World::FromEnvironment({.env = RankEnv(0, 2, 1234)}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("Gloo()")));
}

TEST(World, RanksStartedByHandMeetAtTheMaster) {
  const FreePort free;
  const std::uint16_t port = free.port();
  auto provider = std::make_shared<NullProvider>();
  auto one = Enter(RankEnv(1, 2, port), provider);
  auto zero = Enter(RankEnv(0, 2, port), provider);
  MadeWorld first = zero.get(), second = one.get();
  ASSERT_OK(first);
  ASSERT_OK(second);
  EXPECT_EQ((*second)->rank(), Rank(1));
  EXPECT_EQ((*second)->shard(), (Shard{Rank(1), WorldSize(2)}));
  EXPECT_OK((*first)->store()->Set("k", "v"));
  EXPECT_EQ(*(*second)->store()->Get("k", Deadline::After(seconds(5))), "v");
  EXPECT_THAT((*second)->Describe(),
              AllOf(HasSubstr("hand"), HasSubstr("1 of 2"), HasSubstr("RANK, WORLD_SIZE"),
                    HasSubstr(StrCat("127.0.0.1 port ", port)), HasSubstr("null")));
  second->reset();
}

/// Lines that the library tells.
class Lines final : public LogSink {
 public:
  void Write(Severity severity, std::string_view, std::string_view message) override {
    const std::lock_guard lock(mutex_);
    text_ += StrCat(Name(severity), ": ", message, "\n");
  }
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

std::future<MadeWorld> Enter(WorldOptions options) {
  return std::async(std::launch::async,
                    [options = std::move(options)] { return World::FromEnvironment(options); });
}

/// What mpirun sets for one rank of a job on this host.
Env OpenMpiEnv(int rank, int size) {
  Env env;
  env.ompi_comm_world_rank = env.ompi_comm_world_local_rank = StrCat(rank);
  env.ompi_comm_world_size = env.ompi_comm_world_local_size = StrCat(size);
  env.ompi_job_key = StrCat("world-test-", getpid());
  return env;
}

TEST(World, RanksOfOneMpirunMeetWithoutAPort) {
  auto provider = std::make_shared<NullProvider>();
  auto one = Enter(OpenMpiEnv(1, 2), provider);
  auto zero = Enter(OpenMpiEnv(0, 2), provider);
  MadeWorld first = zero.get(), second = one.get();
  ASSERT_OK(first);
  ASSERT_OK(second);
  EXPECT_EQ((*first)->launch().launched_by, LaunchedBy::kOpenMpi);
  EXPECT_EQ((*first)->store()->port(), 0);
  EXPECT_OK((*first)->store()->Set("k", "v"));
  EXPECT_EQ(*(*second)->store()->Get("k", Deadline::After(seconds(5))), "v");
  second->reset();
}

TEST(World, ASecondRankZeroOfAMpirunIsAPrecondition) {
  const SocketFd holder =
      *internal::Listen(LaunchInfo::FromEnv(OpenMpiEnv(0, 2))->master_address, 0);
  EXPECT_THAT(Enter(OpenMpiEnv(0, 2), std::make_shared<NullProvider>()).get(),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("is in use")));
}

TEST(World, FindsTheHostsAndTheLocalRanksItself) {
  const FreePort free;
  auto provider = std::make_shared<NullProvider>();
  std::vector<std::future<MadeWorld>> ranks;
  for (int rank : {2, 1, 0}) {
    Env env = RankEnv(rank, 3, free.port());
    env.local_rank = env.local_world_size = std::nullopt;
    ranks.push_back(Enter(env, provider));
  }
  std::vector<MadeWorld> worlds;
  for (auto& rank : ranks) worlds.push_back(rank.get());
  for (const MadeWorld& world : worlds) {
    ASSERT_OK(world);
    EXPECT_EQ((*world)->local_rank(), (*world)->rank());
    EXPECT_EQ((*world)->local_size(), WorldSize(3));
    ASSERT_EQ((*world)->hosts().size(), 1u);
    EXPECT_EQ((*world)->hosts()[0].ranks, (std::vector{Rank(0), Rank(1), Rank(2)}));
    EXPECT_GE((*world)->threads(), 1);
    EXPECT_THAT((*world)->Describe(),
                AllOf(HasSubstr("as they found each other"), HasSubstr("ranks 0-2"),
                      HasSubstr("interface    lo (127.0.0.1)")));
  }
  for (MadeWorld& world : worlds) world->reset();
}

TEST(World, TakesTheLaunchFromArguments) {
  const FreePort free;
  std::vector<std::future<MadeWorld>> ranks;
  for (int rank : {1, 0}) {
    Env env = RankEnv(0, 7, 1);  // overruled
    env.omp_num_threads = "3";
    ranks.push_back(Enter(WorldOptions{.transport = std::make_shared<NullProvider>(),
                                       .env = env,
                                       .launch = LaunchInfo{.rank = Rank(rank),
                                                            .size = WorldSize(2),
                                                            .master_address = "127.0.0.1",
                                                            .master_port = free.port()},
                                       .join_timeout = seconds(20)}));
  }
  MadeWorld one = ranks[0].get(), zero = ranks[1].get();
  ASSERT_OK(one);
  ASSERT_OK(zero);
  EXPECT_EQ((*one)->rank(), Rank(1));
  EXPECT_EQ((*one)->local_size(), WorldSize(2));
  EXPECT_EQ((*one)->threads(), 3);
  EXPECT_THAT((*one)->Describe(), StartsWith("launched by  arguments"));
  one->reset();
}

TEST(World, RefusesArgumentsThatCannotBe) {
  const LaunchInfo good{
      .rank = Rank(0), .size = WorldSize(2), .master_address = "127.0.0.1", .master_port = 1};
  const auto made_of = [&](auto change) {
    LaunchInfo launch = good;
    change(launch);
    return World::FromEnvironment({.env = Env{}, .launch = launch});
  };
  EXPECT_THAT(made_of([](LaunchInfo& launch) { launch.rank = Rank(2); }),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("rank 2 of 2")));
  EXPECT_THAT(made_of([](LaunchInfo& launch) { launch.master_address = ""; }),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("master_address is empty")));
  EXPECT_THAT(made_of([](LaunchInfo& launch) { launch.master_port = 0; }),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("master_port is 0")));
  EXPECT_THAT(made_of([](LaunchInfo& launch) {
                launch.local_is_given = true;
                launch.local_size = WorldSize(3);
              }),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("local rank 0 of 3")));
}

TEST(World, TellsItsDecisionsToTheLogWhenAsked) {
  Lines lines;
  Env env;
  env.ait_describe = "1";
  ASSERT_OK_AND_ASSIGN(const auto world, World::FromEnvironment({.env = env, .log = &lines}));
  EXPECT_TRUE(world->asked_to_describe());
  EXPECT_THAT(lines.text(), HasSubstr("info: launched by  nobody"));

  Lines quiet;
  env.ait_describe = "0";
  EXPECT_OK(
      World::FromEnvironment({.env = env, .log = &quiet, .decisions = LogDecisions::kEveryRank}));
  EXPECT_EQ(quiet.text(), "");

  Lines of_options;
  EXPECT_OK(World::FromEnvironment(
      {.env = Env{}, .log = &of_options, .decisions = LogDecisions::kRankZero}));
  EXPECT_THAT(of_options.text(), HasSubstr("threads"));

  env.ait_describe = "yes";
  EXPECT_THAT(World::FromEnvironment({.env = env}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("AIT_DESCRIBE is \"yes\"")));
}

TEST(World, WarnsInABatchScriptWithoutSrun) {
  Lines lines;
  Env env;
  env.slurm_job_id = "17";
  env.slurm_ntasks = "4";
  ASSERT_OK_AND_ASSIGN(const auto world, World::FromEnvironment({.env = env, .log = &lines}));
  EXPECT_EQ(world->size(), WorldSize(1));
  EXPECT_THAT(lines.text(), AllOf(HasSubstr("warning: "), HasSubstr("start it by srun")));
}

TEST(World, RefusesAnInterfaceThatIsNotThere) {
  Env env = RankEnv(0, 2, 1234);
  env.gloo_socket_ifname = "eth-none";
  EXPECT_THAT(
      World::FromEnvironment({.transport = std::make_shared<NullProvider>(), .env = env}),
      StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("GLOO_SOCKET_IFNAME is eth-none"),
                                                   HasSubstr("it has "), HasSubstr("lo"))));
}

TEST(World, RefusesThreadsThatAreNoNumber) {
  Env env;
  env.omp_num_threads = "many";
  EXPECT_THAT(World::FromEnvironment({.env = env}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("OMP_NUM_THREADS is \"many\"")));
}

TEST(World, NamesAMasterThatDoesNotResolve) {
  Env env = RankEnv(1, 2, 1234);
  env.master_addr = "no-such-host.invalid";
  EXPECT_THAT(Enter(env, std::make_shared<NullProvider>(), milliseconds(100)).get(),
              StatusIs(StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("the name no-such-host.invalid does not resolve"),
                             HasSubstr("check MASTER_ADDR"))));
}

TEST(World, NamesTheProcessThatIsNoLauncher) {
  Env env;
  env.pmi_rank = "1";
  env.pmi_size = "2";
  env.mpi_localrankid = "1";
  env.mpi_localnranks = "2";
  env.pmi_fd = "65000";
  EXPECT_THAT(Enter(env, std::make_shared<NullProvider>(), milliseconds(100)).get(),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("PMI_FD 65000 is no socket")));
}

TEST(World, NamesAPeerThatNeverComes) {
  const FreePort free;
  auto zero =
      Enter(RankEnv(0, 3, free.port()), std::make_shared<NullProvider>(), milliseconds(200));
  EXPECT_THAT(zero.get(), StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("ranks 1, 2 of 3")));
}

TEST(World, APortInUseIsAPrecondition) {
  SocketFd holder = *internal::Listen("127.0.0.1", 0);
  auto zero =
      Enter(RankEnv(0, 2, *internal::LocalPort(holder.get())), std::make_shared<NullProvider>());
  EXPECT_THAT(zero.get(),
              StatusIs(StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("in use"), HasSubstr(StrCat("pid ", getpid())))));
}

TEST(World, AitRunHandsDownTheSocket) {
  SocketFd holder = *internal::Listen("127.0.0.1", 0);
  const std::uint16_t port = *internal::LocalPort(holder.get());
  auto provider = std::make_shared<NullProvider>();
  std::vector<std::future<MadeWorld>> ranks;
  for (int rank : {1, 0}) {
    Env env = RankEnv(rank, 2, port);
    env.ait_run_id = "attempt-1";
    env.ait_parent_pid = StrCat(getpid());
    if (rank == 0) env.ait_listen_fd = StrCat(dup(holder.get()));
    ranks.push_back(Enter(env, provider));
  }
  MadeWorld one = ranks[0].get(), zero = ranks[1].get();
  ASSERT_OK(one);
  ASSERT_OK(zero);
  EXPECT_THAT((*zero)->Describe(),
              AllOf(HasSubstr("ait run"), HasSubstr("AIT_LISTEN_FD"), HasSubstr("attempt-1")));
  one->reset();
}

TEST(World, ARankDoesNotStartAfterItsLauncherHasEnded) {
  pid_t child = 0;
  char name[] = "true";
  char* arguments[] = {name, nullptr};
  ASSERT_EQ(posix_spawn(&child, "/bin/true", nullptr, nullptr, arguments, environ), 0);
  waitpid(child, nullptr, 0);
  Env env = RankEnv(0, 2, 1234);
  env.ait_run_id = "r";
  env.ait_parent_pid = StrCat(child);
  EXPECT_THAT(World::FromEnvironment({.transport = std::make_shared<NullProvider>(), .env = env}),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("AIT_PARENT_PID")));
}

Env TorchrunEnv(int rank, int size, int restart) {
  Env env = RankEnv(rank, size, 4321);  // where the agent would serve
  env.torchelastic_run_id = "job";
  env.torchelastic_use_agent_store = "True";
  env.torchelastic_restart_count = StrCat(restart);
  return env;
}

TEST(World, TorchrunsRanksMeetThroughTheAgentsStore) {
  auto provider = std::make_shared<NullProvider>(MakeProcessStore());
  std::vector<std::string> run_ids;
  for (int restart : {0, 1}) {
    auto one = Enter(TorchrunEnv(1, 2, restart), provider);  // finds the old address first
    std::this_thread::sleep_for(milliseconds(50));
    auto zero = Enter(TorchrunEnv(0, 2, restart), provider);
    MadeWorld first = zero.get(), second = one.get();
    ASSERT_OK(first);
    ASSERT_OK(second);
    EXPECT_EQ((*first)->launch().run_id, (*second)->launch().run_id);
    run_ids.push_back((*first)->launch().run_id);
    EXPECT_OK((*first)->store()->Set("attempt", StrCat(restart)));
    EXPECT_EQ(*(*second)->store()->Get("attempt", Deadline::After(seconds(5))), StrCat(restart));
    second->reset();
  }
  EXPECT_NE(run_ids[0], run_ids[1]);
}

TEST(World, AttemptsOnOneAgentStoreDoNotMixEvenWhileBothLive) {
  auto provider = std::make_shared<NullProvider>(MakeProcessStore());
  auto old_zero = Enter(TorchrunEnv(0, 2, 0), provider, seconds(2));
  std::this_thread::sleep_for(milliseconds(100));
  auto new_one = Enter(TorchrunEnv(1, 2, 1), provider);
  std::this_thread::sleep_for(milliseconds(100));
  auto new_zero = Enter(TorchrunEnv(0, 2, 1), provider);
  EXPECT_OK(new_zero.get());
  EXPECT_OK(new_one.get());
  EXPECT_THAT(old_zero.get(), StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("rank 1 of 2")));
}

TEST(World, LooksForANewerMeetingIfTheOldRankZeroHangs) {
  const std::shared_ptr<Store> agent = MakeProcessStore();
  auto provider = std::make_shared<NullProvider>(agent);
  const SocketFd hangs = *internal::Listen("127.0.0.1", 0);  // accepts, and never answers
  EXPECT_OK(agent->Set("ait/job/meeting/1",
                       StrCat("127.0.0.1 ", *internal::LocalPort(hangs.get()), " 0 old")));
  EXPECT_OK(agent->Add("ait/job/generation", 1));
  auto one = Enter(TorchrunEnv(1, 2, 0), provider, seconds(60));
  std::this_thread::sleep_for(milliseconds(200));
  auto zero = Enter(TorchrunEnv(0, 2, 0), provider, seconds(60));
  MadeWorld first = zero.get(), second = one.get();
  EXPECT_OK(first);
  ASSERT_OK(second);
  second->reset();
}

TEST(World, TellsThatRankZeroPublishedNothing) {
  auto provider = std::make_shared<NullProvider>(MakeProcessStore());
  auto one = Enter(TorchrunEnv(1, 2, 0), provider, milliseconds(150));
  EXPECT_THAT(one.get(), StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("rank 0")));
}

}  // namespace
}  // namespace ait

// SPDX-License-Identifier: Apache-2.0
// Launchers of several hosts, which here are threads of this process and meet on the loopback
// interface.
#include <signal.h>

#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ait/launch/launcher.h"
#include "comm/tcp_store_socket.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using std::chrono_literals::operator""ms;
using std::chrono_literals::operator""s;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// What the ranks of all hosts wrote.
class Collector final : public RankOutput {
 public:
  void Write(Rank rank, RankStream, std::string_view text) override {
    const std::lock_guard lock(mutex_);
    texts_[rank.value()] += text;
    if (on_text && !text.empty()) on_text(rank, text);
  }
  std::string Of(int rank) {
    const std::lock_guard lock(mutex_);
    return texts_[rank];
  }
  std::function<void(Rank, std::string_view)> on_text;

 private:
  std::mutex mutex_;
  std::map<int, std::string> texts_;
};

class LauncherHosts : public ::testing::Test {
 protected:
  LaunchOptions Host(int index, int count, int ranks, std::vector<std::string> commands) {
    LaunchOptions options = {.command = {AIT_TEST_PUPPET},
                             .world_size = WorldSize(ranks),
                             .hosts = {.count = count,
                                       .index = index,
                                       .address = "127.0.0.1",
                                       .port = port_,
                                       .join_timeout = 30s},
                             .timeout = 60s,
                             .grace = 200ms,
                             .output = &collector_};
    options.command.insert(options.command.end(), commands.begin(), commands.end());
    return options;
  }

  /// Each host on a thread of its own, with which its ranks die.
  std::vector<StatusOr<LaunchResult>> Run(std::vector<LaunchOptions> hosts) {
    std::vector<std::future<StatusOr<LaunchResult>>> running;
    for (LaunchOptions& options : hosts) {
      running.push_back(std::async(
          std::launch::async, [options = std::move(options)]() -> StatusOr<LaunchResult> {
            AIT_ASSIGN_OR_RETURN(Launcher launcher, Launcher::Create(options));
            return launcher.Run();
          }));
    }
    std::vector<StatusOr<LaunchResult>> results;
    for (auto& host : running) results.push_back(host.get());
    return results;
  }

  Collector collector_;
  const std::uint16_t port_ =
      *internal::LocalPort(internal::Listen("127.0.0.1", 0)->get());  // free a moment ago
};

TEST_F(LauncherHosts, RanksAreNumberedOverHostsOfDifferentSize) {
  const std::vector<std::string> commands = {"env", "RANK",        "env", "WORLD_SIZE",
                                             "env", "LOCAL_RANK",  "env", "LOCAL_WORLD_SIZE",
                                             "env", "MASTER_ADDR", "env", "AIT_LISTEN_FD"};
  const auto results = Run({Host(0, 2, 1, commands), Host(1, 2, 2, commands)});
  for (const auto& result : results) {
    ASSERT_OK(result);
    EXPECT_OK(result->status);
    EXPECT_EQ(result->exit_code, 0);
  }
  EXPECT_EQ(results[1]->ranks.size(), 2u);
  EXPECT_EQ(collector_.Of(0),
            "RANK=0\nWORLD_SIZE=3\nLOCAL_RANK=0\nLOCAL_WORLD_SIZE=1\nMASTER_ADDR=127.0.0.1\n"
            "AIT_LISTEN_FD=3\n");
  EXPECT_EQ(collector_.Of(2),
            "RANK=2\nWORLD_SIZE=3\nLOCAL_RANK=1\nLOCAL_WORLD_SIZE=2\nMASTER_ADDR=127.0.0.1\n"
            "AIT_LISTEN_FD is unset\n");
}

TEST_F(LauncherHosts, RanksOfAllHostsMeetAtRankZero) {
  const std::vector<std::string> commands = {"env",     "AIT_RUN_ID", "if", "1",
                                             "connect", "if",         "0",  "listen"};
  const auto results = Run({Host(0, 2, 1, commands), Host(1, 2, 1, commands)});
  ASSERT_OK(results[0]);
  EXPECT_OK(results[0]->status);
  EXPECT_THAT(collector_.Of(0), HasSubstr("connected"));
  EXPECT_EQ(collector_.Of(1) + "connected\n", collector_.Of(0)) << "one run id";
}

TEST_F(LauncherHosts, AFailureStopsAllHostsWithItsCode) {
  for (const int failing : {0, 1, 3}) {
    const std::vector<std::string> commands = {"if", std::to_string(failing), "exit", "7", "sleep",
                                               "0"};
    const auto results = Run({Host(0, 2, 2, commands), Host(1, 2, 2, commands)});
    for (const auto& result : results) {
      ASSERT_OK(result);
      EXPECT_EQ(result->exit_code, 7);
      EXPECT_EQ(result->first_failure, Rank(failing));
      EXPECT_THAT(result->status,
                  StatusIs(StatusCode::kAborted,
                           AllOf(HasSubstr("rank " + std::to_string(failing) + " of 4"),
                                 HasSubstr("exited with code 7"))));
    }
    const auto& other = results[failing < 2 ? 1 : 0];
    EXPECT_EQ(other->ranks[0].signal, SIGTERM);
    EXPECT_THAT(Message(other->status), HasSubstr(failing < 2 ? "on host 0" : "on host 1"));
  }
}

TEST_F(LauncherHosts, AHostWhoseRanksHaveEndedWaitsForTheOthers) {
  const auto results =
      Run({Host(0, 2, 1, {"exit", "0"}), Host(1, 2, 1, {"sleep", "300", "exit", "5"})});
  ASSERT_OK(results[0]);
  EXPECT_EQ(results[0]->exit_code, 5);
  EXPECT_EQ(results[0]->first_failure, Rank(1));
}

TEST_F(LauncherHosts, TheTimeOutOfOneHostIsThatOfAll) {
  LaunchOptions second = Host(1, 2, 1, {"sleep", "0"});
  second.timeout = 300ms;
  const auto results = Run({Host(0, 2, 1, {"sleep", "0"}), second});
  for (const auto& result : results) {
    ASSERT_OK(result);
    EXPECT_EQ(result->exit_code, 124);
    EXPECT_THAT(result->status, StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("time-out")));
  }
}

TEST_F(LauncherHosts, StopReachesAllHosts) {
  const std::vector<std::string> commands = {"catch", "2", "print", "ready", "sleep", "0"};
  StatusOr<Launcher> launcher = UnavailableError("not yet");  // of host 0, before rank 0 is ready
  std::map<int, bool> ready;
  bool stopped = false;
  collector_.on_text = [&](Rank rank, std::string_view text) {
    ready[rank.value()] |= text == "ready\n";
    if (ready[0] && ready[1] && !std::exchange(stopped, true)) launcher->Stop(SIGINT);
  };
  std::future<StatusOr<LaunchResult>> second =
      std::async(std::launch::async, [&]() -> StatusOr<LaunchResult> {
        AIT_ASSIGN_OR_RETURN(Launcher other, Launcher::Create(Host(1, 2, 1, commands)));
        return other.Run();
      });
  launcher = Launcher::Create(Host(0, 2, 1, commands));
  ASSERT_OK(launcher);
  const auto first = launcher->Run();
  ASSERT_OK(first);
  EXPECT_OK(first->status) << "its rank ended with 0";
  const auto result = second.get();
  ASSERT_OK(result);
  EXPECT_OK(result->status);
  EXPECT_THAT(collector_.Of(1), HasSubstr("caught 02"));
}

TEST_F(LauncherHosts, ALauncherThatGivesUpEndsTheRun) {
  std::future<Status> second = std::async(std::launch::async, [&] {
    return Launcher::Create(Host(1, 2, 1, {"exit", "0"})).status();  // and never runs
  });
  const auto results = Run({Host(0, 2, 1, {"sleep", "0"})});
  EXPECT_OK(second.get());
  ASSERT_OK(results[0]);
  EXPECT_EQ(results[0]->exit_code, 125);
  EXPECT_THAT(results[0]->status,
              StatusIs(StatusCode::kUnavailable, HasSubstr("the launcher gave up on host 1")));
}

TEST_F(LauncherHosts, NamesTheHostsThatDoNotCome) {
  LaunchOptions options = Host(0, 3, 1, {"exit", "0"});
  options.hosts.join_timeout = 200ms;
  EXPECT_THAT(Run({options})[0], StatusIs(StatusCode::kDeadlineExceeded,
                                          AllOf(HasSubstr("the launchers of 3 hosts do not meet"),
                                                HasSubstr("ranks 1, 2 of 3"))));
}

TEST_F(LauncherHosts, RefusesHostsThatCannotBe) {
  EXPECT_THAT(Run({Host(2, 2, 1, {})})[0],
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("host 2 of 2")));
  LaunchOptions nowhere = Host(0, 2, 1, {});
  nowhere.hosts.address = "";
  EXPECT_THAT(Run({nowhere})[0], StatusIs(StatusCode::kInvalidArgument, HasSubstr("address")));
  // Two launchers that say different numbers.
  LaunchOptions two = Host(0, 2, 1, {"exit", "0"});
  two.hosts.join_timeout = 2s;
  LaunchOptions three = Host(1, 3, 1, {"exit", "0"});
  three.hosts.join_timeout = 2s;
  const auto results = Run({two, three});
  EXPECT_THAT(results[1], StatusIs(StatusCode::kFailedPrecondition, HasSubstr("has world size 3")));
}

}  // namespace
}  // namespace ait

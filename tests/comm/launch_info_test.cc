// SPDX-License-Identifier: Apache-2.0
#include <map>
#include <string>
#include <vector>

#include "ait/comm/world.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::testing::HasSubstr;

using Variables = std::map<std::string, std::string>;

Env EnvOf(const Variables& variables) {
  return Env::From([&](const char* name) -> Env::Value {
    const auto found = variables.find(name);
    return found == variables.end() ? Env::Value() : Env::Value(found->second);
  });
}

const Variables kManual = {
    {"RANK", "1"}, {"WORLD_SIZE", "4"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "29400"}};
const Variables kTorchrun = {{"RANK", "1"},
                             {"WORLD_SIZE", "2"},
                             {"LOCAL_RANK", "1"},
                             {"LOCAL_WORLD_SIZE", "2"},
                             {"GROUP_RANK", "0"},
                             {"MASTER_ADDR", "localhost"},
                             {"MASTER_PORT", "41000"},
                             {"TORCHELASTIC_RUN_ID", "job"},
                             {"TORCHELASTIC_RESTART_COUNT", "3"},
                             {"TORCHELASTIC_USE_AGENT_STORE", "True"}};
const Variables kAitRun = {{"RANK", "0"},
                           {"WORLD_SIZE", "2"},
                           {"LOCAL_RANK", "0"},
                           {"LOCAL_WORLD_SIZE", "2"},
                           {"MASTER_ADDR", "127.0.0.1"},
                           {"MASTER_PORT", "41000"},
                           {"AIT_RUN_ID", "r1"},
                           {"AIT_LISTEN_FD", "3"},
                           {"AIT_PARENT_PID", "77"}};

Variables With(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) {
    if (value.empty()) {
      variables.erase(name);
    } else {
      variables[name] = value;
    }
  }
  return variables;
}

TEST(LaunchInfo, NothingSetIsOneProcessAlone) {
  ASSERT_OK_AND_ASSIGN(const LaunchInfo info, LaunchInfo::FromEnv(Env{}));
  EXPECT_EQ(info.launched_by, LaunchedBy::kNobody);
  EXPECT_EQ(info.rank, Rank(0));
  EXPECT_EQ(info.size, WorldSize(1));
  EXPECT_EQ(info.local_size, WorldSize(1));
}

TEST(LaunchInfo, ReadsAManualLaunch) {
  ASSERT_OK_AND_ASSIGN(const LaunchInfo info, LaunchInfo::FromEnv(EnvOf(kManual)));
  EXPECT_EQ(info.launched_by, LaunchedBy::kHand);
  EXPECT_EQ(info.rank, Rank(1));
  EXPECT_EQ(info.size, WorldSize(4));
  EXPECT_EQ(info.local_rank, Rank(1));
  EXPECT_EQ(info.local_size, WorldSize(4));
  EXPECT_EQ(info.master_address, "10.0.0.1");
  EXPECT_EQ(info.master_port, 29400);
  EXPECT_EQ(info.listen_fd, -1);
  EXPECT_FALSE(info.agent_store);
}

TEST(LaunchInfo, ReadsTorchrun) {
  ASSERT_OK_AND_ASSIGN(const LaunchInfo info, LaunchInfo::FromEnv(EnvOf(kTorchrun)));
  EXPECT_EQ(info.launched_by, LaunchedBy::kTorchrun);
  EXPECT_TRUE(info.agent_store);
  EXPECT_EQ(info.run_id, "job");
  EXPECT_EQ(info.restart_count, 3);
}

TEST(LaunchInfo, ReadsAitRun) {
  ASSERT_OK_AND_ASSIGN(const LaunchInfo info,
                       LaunchInfo::FromEnv(EnvOf(With(kAitRun, {{"GLOO_SOCKET_IFNAME", "eth1"}}))));
  EXPECT_EQ(info.launched_by, LaunchedBy::kAitRun);
  EXPECT_EQ(info.listen_fd, 3);
  EXPECT_EQ(info.run_id, "r1");
  EXPECT_EQ(info.interface_name, "eth1");
}

TEST(LaunchInfo, AitRunInsideTorchrunIsAitRun) {
  ASSERT_OK_AND_ASSIGN(
      const LaunchInfo info,
      LaunchInfo::FromEnv(EnvOf(With(
          kAitRun, {{"TORCHELASTIC_RUN_ID", "outer"}, {"TORCHELASTIC_USE_AGENT_STORE", "True"}}))));
  EXPECT_EQ(info.launched_by, LaunchedBy::kAitRun);
  EXPECT_FALSE(info.agent_store);
}

struct Case {
  Variables variables;
  std::vector<std::string> says;
};

TEST(LaunchInfo, NamesEveryConflictWithAllValues) {
  const std::vector<Case> cases = {
      {{{"RANK", "0"}}, {"WORLD_SIZE, MASTER_ADDR, MASTER_PORT not set", "Seen: RANK=0"}},
      {{{"MASTER_ADDR", "h"}}, {"RANK, WORLD_SIZE, MASTER_PORT not set"}},
      {{{"LOCAL_RANK", "0"}}, {"not set", "LOCAL_RANK=0"}},
      {With(kManual, {{"MASTER_ADDR", ""}}), {"MASTER_ADDR not set", "MASTER_PORT=29400"}},
      {With(kManual, {{"MASTER_PORT", ""}}), {"MASTER_PORT not set"}},
      {With(kManual, {{"RANK", "4"}}), {"RANK 4 is not below WORLD_SIZE 4"}},
      {With(kManual, {{"RANK", "-1"}}), {"RANK is below 0"}},
      {With(kManual, {{"RANK", "one"}}), {"RANK is not a whole number", "RANK=one"}},
      {With(kManual, {{"RANK", "1.0"}}), {"RANK is not a whole number"}},
      {With(kManual, {{"RANK", "99999999999"}}), {"RANK is not a whole number"}},
      {With(kManual, {{"WORLD_SIZE", "0"}}), {"WORLD_SIZE is below 1"}},
      {With(kManual, {{"WORLD_SIZE", " 4"}}), {"WORLD_SIZE is not a whole number"}},
      {With(kManual, {{"MASTER_PORT", "0"}}), {"MASTER_PORT is not in 1 to 65535"}},
      {With(kManual, {{"MASTER_PORT", "65536"}}), {"MASTER_PORT is not in 1 to 65535"}},
      {With(kManual, {{"MASTER_PORT", "http"}}), {"MASTER_PORT is not a whole number"}},
      {With(kManual, {{"LOCAL_RANK", "4"}}), {"LOCAL_RANK 4 is not below LOCAL_WORLD_SIZE 4"}},
      {With(kManual, {{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "5"}}),
       {"LOCAL_WORLD_SIZE 5 is above WORLD_SIZE 4"}},
      {With(kManual, {{"LOCAL_WORLD_SIZE", "2"}}), {"LOCAL_RANK is not set"}},
      {With(kManual, {{"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "2"}}),
       {"LOCAL_RANK 2 is not below LOCAL_WORLD_SIZE 2"}},
      {With(kManual,
            {{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}, {"MASTER_ADDR", "127.0.0.1"}}),
       {"MASTER_ADDR 127.0.0.1 is the loopback interface", "2 ranks of other hosts"}},
      {With(kManual,
            {{"LOCAL_RANK", "1"}, {"LOCAL_WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}}),
       {"MASTER_ADDR localhost is the loopback interface"}},
      {With(kManual, {{"TORCHELASTIC_USE_AGENT_STORE", "True"}}),
       {"TORCHELASTIC_RUN_ID is not set"}},
      {With(kTorchrun, {{"TORCHELASTIC_USE_AGENT_STORE", "yes"}}),
       {"TORCHELASTIC_USE_AGENT_STORE is neither True nor False"}},
      {With(kTorchrun, {{"TORCHELASTIC_RESTART_COUNT", "x"}}),
       {"TORCHELASTIC_RESTART_COUNT is not a whole number"}},
      {With(kTorchrun, {{"TORCHELASTIC_RUN_ID", std::string(300, 'x')}}), {"300 bytes"}},
      {With(kAitRun, {{"AIT_RUN_ID", ""}}), {"AIT_RUN_ID is not set"}},
      {With(kAitRun, {{"RANK", "1"}, {"LOCAL_RANK", "1"}}),
       {"AIT_LISTEN_FD is set, but only rank 0 serves and this is rank 1"}},
      {With(kAitRun, {{"AIT_LISTEN_FD", "three"}}), {"AIT_LISTEN_FD is not a whole number"}},
      {With(kAitRun, {{"AIT_PARENT_PID", "-5"}}), {"AIT_PARENT_PID is below 1"}},
      // Several at once are all told.
      {{{"RANK", "x"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "70000"}},
       {"MASTER_ADDR not set", "RANK is not a whole number", "MASTER_PORT is not in",
        "Seen: RANK=x WORLD_SIZE=2 MASTER_PORT=70000"}},
  };
  for (const Case& entry : cases) {
    const auto info = LaunchInfo::FromEnv(EnvOf(entry.variables));
    for (const std::string& text : entry.says) {
      EXPECT_THAT(info, StatusIs(StatusCode::kInvalidArgument, HasSubstr(text)));
    }
  }
}

}  // namespace
}  // namespace ait

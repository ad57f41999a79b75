// SPDX-License-Identifier: Apache-2.0
// Ranks with the variables that torchrun 2.11 sets, and its agent's store, which this test serves.
#include <ATen/core/ivalue.h>
// Keep the order.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <map>
#include <string>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <vector>

#include "support/process.h"

namespace ait::testing {
namespace {

class GlooTorchrun : public ::testing::Test {
 protected:
  GlooTorchrun() {
    c10d::TCPStoreOptions options;
    options.port = 0;
    options.isServer = true;
    options.waitWorkers = false;
    agent_ = c10::make_intrusive<c10d::TCPStore>("localhost", options);
  }

  std::vector<Process> Spawn(const std::string& mode, int restart) {
    std::vector<Process> ranks;
    for (int rank : {1, 0}) {
      const std::string text = std::to_string(rank);
      ranks.push_back(
          Process::Spawn({.program = AIT_TEST_RANK,
                          .args = {mode},
                          .environment = {{"RANK", text},
                                          {"LOCAL_RANK", text},
                                          {"GROUP_RANK", "0"},
                                          {"ROLE_RANK", text},
                                          {"ROLE_NAME", "default"},
                                          {"WORLD_SIZE", "2"},
                                          {"LOCAL_WORLD_SIZE", "2"},
                                          {"GROUP_WORLD_SIZE", "1"},
                                          {"ROLE_WORLD_SIZE", "2"},
                                          {"MASTER_ADDR", "localhost"},
                                          {"MASTER_PORT", std::to_string(agent_->getPort())},
                                          {"TORCHELASTIC_RESTART_COUNT", std::to_string(restart)},
                                          {"TORCHELASTIC_MAX_RESTARTS", "3"},
                                          {"TORCHELASTIC_RUN_ID", "none"},
                                          {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                          {"OMP_NUM_THREADS", "1"}}}));
    }
    return ranks;
  }

  static std::string RunId(const std::string& output) {
    const std::size_t at = output.find("run ") + 4;
    return output.substr(at, output.find('\n', at) - at);
  }

  c10::intrusive_ptr<c10d::TCPStore> agent_;
};

TEST_F(GlooTorchrun, AttemptsOnOneAgentStoreDoNotMix) {
  // The first attempt is killed half way, as torchrun does; the second finds its keys.
  auto first = Spawn("loop", 0);
  std::string first_id;
  for (Process& rank : first) first_id = RunId(rank.ReadUntil("ready"));
  for (Process& rank : first) rank.Signal(SIGKILL);
  for (Process& rank : first) rank.ExpectExit(128 + SIGKILL);

  auto second = Spawn("once", 1);
  std::string second_id;
  for (Process& rank : second) {
    second_id = RunId(rank.ReadUntil("ready"));
    rank.ExpectExit(0);
  }
  EXPECT_NE(first_id, second_id);
}

TEST_F(GlooTorchrun, ALeftOverAgentIsAnErrorThatNamesIt) {
  const int port = agent_->getPort();
  agent_.reset();  // as if the variables came from a job that is over
  Process rank = Process::Spawn({.program = AIT_TEST_RANK,
                                 .args = {"once", "30000", "1000"},
                                 .environment = {{"RANK", "0"},
                                                 {"LOCAL_RANK", "0"},
                                                 {"WORLD_SIZE", "2"},
                                                 {"LOCAL_WORLD_SIZE", "2"},
                                                 {"MASTER_ADDR", "localhost"},
                                                 {"MASTER_PORT", std::to_string(port)},
                                                 {"TORCHELASTIC_RESTART_COUNT", "0"},
                                                 {"TORCHELASTIC_RUN_ID", "none"},
                                                 {"TORCHELASTIC_USE_AGENT_STORE", "True"}}});
  rank.ExpectExit(3, "torchrun's agent");
}

}  // namespace
}  // namespace ait::testing

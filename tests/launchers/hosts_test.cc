// SPDX-License-Identifier: Apache-2.0
// examples/03-gpt under `ait run` on two and four hosts, which are network namespaces of this one.
#include <unistd.h>

#include <string>
#include <vector>

#include "launchers/launched_gpt.h"

namespace ait::testing {
namespace {

using ::testing::HasSubstr;

class Hosts : public LaunchedGpt {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "network namespaces need root";
    for (const char* tool : {"unshare", "ip"}) {
      if (FindTool(tool).empty()) GTEST_SKIP() << tool << " is not installed (package iproute2)";
    }
  }

  /// `ait run OPTIONS` on each host, where `options` is shell text that may use $HOST.
  Process OnHosts(int count, const std::string& options, const std::string& out) {
    const std::string script = "exec " + std::string(AIT_PROGRAM) +
                               " run --threads 1 --verbose --nodes " + std::to_string(count) +
                               " --node-rank $HOST " + options + " -- \"$@\"";
    return Launch("/bin/bash", {AIT_HOSTS, std::to_string(count), "bash", "-c", script, "run"},
                  out);
  }
};

TEST_F(Hosts, TwoHostsOfTwoRanks) {
  Process run = OnHosts(2, "-n 2 --rendezvous 10.77.0.1:29400", "two");
  run.ExpectExit(0, "weights and metrics");
  EXPECT_THAT(run.output(), HasSubstr("host 1 ended with 0"));
  EXPECT_THAT(run.output(), HasSubstr("ranks 2 to 3 of 4, master 10.77.0.1"));
  EXPECT_THAT(run.output(), HasSubstr("interface    net0 (10.77.0.1)"));
  EXPECT_THAT(run.output(), HasSubstr("(10.77.0.2) ranks 2-3"));
  ExpectSameAsOnOneHost("two", 4);
}

TEST_F(Hosts, FourHostsOfDifferentSize) {
  Process run = OnHosts(4, "-n $((HOST == 2 ? 2 : 1)) --rendezvous 10.77.0.1:29400", "four");
  run.ExpectExit(0, "weights and metrics");
  EXPECT_THAT(run.output(), HasSubstr("(10.77.0.3) ranks 2-3"));
  EXPECT_THAT(run.output(), HasSubstr("(10.77.0.4) rank 4"));
  ExpectSameAsOnOneHost("four", 5);
}

TEST_F(Hosts, ALoopbackRendezvousDoesNotLeadToAnotherHost) {
  Process run = OnHosts(2, "-n 1 --join-timeout 2 --rendezvous 127.0.0.1:29400", "loopback");
  run.ExpectExit(125, "host 1 ended with 125");
  EXPECT_THAT(run.output(), HasSubstr("the launchers of 2 hosts do not meet at 127.0.0.1"));
}

TEST_F(Hosts, AMasterThatOtherHostsReachByAnotherAddressIsRefused) {
  // By hand: rank 0's host takes the loopback interface for the master, the other its address.
  const std::string script =
      "export RANK=$HOST WORLD_SIZE=3 MASTER_PORT=29400 MASTER_ADDR=10.77.0.1; "
      "if [ $HOST = 0 ]; then MASTER_ADDR=127.0.0.1 RANK=2 \"$@\" & MASTER_ADDR=10.77.0.1; fi; "
      "exec \"$@\"";
  Process run = Launch("/bin/bash", {AIT_HOSTS, "2", "bash", "-c", script, "run"}, "mixed");
  EXPECT_NE(run.Wait().code, 0);
  EXPECT_THAT(run.output(), HasSubstr("rank 2 on host"));
  EXPECT_THAT(run.output(), HasSubstr("through the loopback interface (127.0.0.1)"));
}

}  // namespace
}  // namespace ait::testing

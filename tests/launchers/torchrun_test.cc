// SPDX-License-Identifier: Apache-2.0
// examples/03-gpt under torchrun, whose agent serves the store. Python's torch is large, so it is
// there only after `./quickstart bench --peers`; tests/multiprocess/gloo_torchrun_test.cc plays the
// agent everywhere else.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "launchers/launched_gpt.h"

namespace ait::testing {
namespace {

using ::testing::HasSubstr;

class Torchrun : public LaunchedGpt {
 protected:
  void SetUp() override {
    if (access((std::string(AIT_PEERS) + "/torch/distributed/run.py").c_str(), R_OK) != 0) {
      GTEST_SKIP() << "Python's torch is not installed (./quickstart bench --peers)";
    }
    if (FindTool("python3").empty()) GTEST_SKIP() << "python3 is not installed";
  }

  /// `torchrun --no-python --standalone OPTIONS PROGRAM`; `program` empty: the example.
  Process Run(std::vector<std::string> options, const std::string& out,
              std::vector<std::string> program = {}) {
    options.insert(options.begin(), {"-m", "torch.distributed.run", "--no-python", "--standalone"});
    options.insert(options.end(), program.begin(), program.end());
    return Launch(FindTool("python3"), std::move(options), out, {{"PYTHONPATH", AIT_PEERS}});
  }
};

TEST_F(Torchrun, RanksMeetThroughTheAgentsStore) {
  Process run = Run({"--nproc-per-node", "2"}, "torchrun");
  run.ExpectExit(0, "weights and metrics");
  EXPECT_THAT(run.output(), HasSubstr("launched by  torchrun"));
  EXPECT_THAT(run.output(), HasSubstr("found through the store of torchrun's agent"));
  ExpectSameAsOnOneHost("torchrun", 2);
}

TEST_F(Torchrun, ASecondAttemptDoesNotMeetTheFirst) {
  // Rank 1 of the first attempt is killed when it has trained for a while. (In its arguments
  // torchrun takes two dollars for one, so the shell's own number comes from BASHPID.)
  const std::string script =
      "if [ $TORCHELASTIC_RESTART_COUNT = 0 ]; then set -- \"$@\" --steps 20000; "
      "self=$BASHPID; if [ $RANK = 1 ]; then (sleep 3; kill -9 $self) & fi; fi; exec \"$@\"";
  Process run = Run({"--nproc-per-node", "2", "--max-restarts", "1"}, "again",
                    {"bash", "-c", script, "rank"});
  run.ExpectExit(0, "after 6 steps");
}

TEST_F(Torchrun, TheReportShowsTheErrorOfTheRank) {
  std::filesystem::remove_all(folder_ / "corpus");
  Process run = Run({"--nproc-per-node", "2"}, "failed");
  run.ExpectExit(1, "failed");
  const std::string report = run.output();
  EXPECT_THAT(report, HasSubstr("Root Cause"));
  EXPECT_THAT(report, HasSubstr("NOT_FOUND: "));
}

}  // namespace
}  // namespace ait::testing

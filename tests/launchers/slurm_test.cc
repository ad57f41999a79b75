// SPDX-License-Identifier: Apache-2.0
// examples/03-gpt as a step of Slurm. Four slurmd of this host are its nodes, started by the test.
#include <unistd.h>

#include <string>
#include <vector>

#include "launchers/launched_gpt.h"

namespace ait::testing {
namespace {

using ::testing::HasSubstr;

class Slurm : public LaunchedGpt {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "a Slurm of one's own needs root";
    for (const char* tool : {"slurmctld", "slurmd", "srun", "unshare", "ip"}) {
      if (FindTool(tool).empty()) {
        GTEST_SKIP() << tool << " is not installed (packages slurm-wlm, iproute2)";
      }
    }
  }

  /// Runs `launcher` and the command beside a cluster that has just been started.
  Process InCluster(std::vector<std::string> launcher, const std::string& out) {
    launcher.insert(launcher.begin(), {AIT_SLURM_CLUSTER, folder_ / ("slurm-" + out)});
    return Launch("/bin/bash", std::move(launcher), out,
                  {{"PATH", "/usr/sbin:/usr/bin:/sbin:/bin"},
                   {"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                   {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}});
  }
};

TEST_F(Slurm, AStepOverTwoNodesMeetsAtTheFirst) {
  Process run = InCluster({"srun", "-N", "2", "-n", "4"}, "two");
  run.ExpectExit(0, "weights and metrics");
  EXPECT_THAT(run.output(), HasSubstr("launched by  Slurm"));
  EXPECT_THAT(run.output(), HasSubstr("first of SLURM_STEP_NODELIST, port by job and step"));
  EXPECT_THAT(run.output(), HasSubstr("0 of 2                             SLURM_LOCALID"));
  ExpectSameAsOnOneHost("two", 4);
}

TEST_F(Slurm, AStepOnOneNodeNeedsNoPort) {
  Process run = InCluster({"srun", "-N", "1", "-n", "2"}, "one");
  run.ExpectExit(0, "weights and metrics");
  EXPECT_THAT(run.output(), HasSubstr("unix:ait-job-and-step-"));
  ExpectSameAsOnOneHost("one", 2);
}

TEST_F(Slurm, AnAllocationWithoutSrunIsOneProcess) {
  Process run = InCluster({"salloc", "-n", "4"}, "alone");
  run.ExpectExit(0, "weights and metrics");
  EXPECT_THAT(run.output(), HasSubstr("SLURM_NTASKS=4: without SLURM_STEP_ID"));
  ExpectSameAsOnOneHost("alone", 1);
}

TEST_F(Slurm, MpirunInsideAnAllocationIsMpirun) {
  if (FindTool("mpirun.openmpi").empty()) {
    GTEST_SKIP() << "mpirun.openmpi is not installed (package openmpi-bin)";
  }
  Process run = InCluster({"salloc", "-N", "2", "-n", "4", "mpirun.openmpi", "--mca",
                           "oob_tcp_if_include", "lo", "-x", "MASTER_ADDR=n0"},
                          "mpirun");
  run.ExpectExit(0, "weights and metrics");
  EXPECT_THAT(run.output(), HasSubstr("launched by  Open MPI"));
  ExpectSameAsOnOneHost("mpirun", 4);
}

}  // namespace
}  // namespace ait::testing

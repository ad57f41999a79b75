// SPDX-License-Identifier: Apache-2.0
// examples/03-gpt under Open MPI's mpirun and MPICH's mpiexec. No MPI is linked.
#include <map>
#include <string>
#include <vector>

#include "launchers/launched_gpt.h"

namespace ait::testing {
namespace {

using ::testing::HasSubstr;

class Mpi : public LaunchedGpt {
 protected:
  static std::map<std::string, std::string> AsRoot() {
    return {{"OMPI_ALLOW_RUN_AS_ROOT", "1"}, {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"}};
  }
  static std::vector<std::string> Mpirun(const std::string& ranks) {
    return {"--mca", "oob_tcp_if_include", "lo", "--oversubscribe", "-n", ranks};
  }
};

TEST_F(Mpi, MpirunNeedsNoAddressOnOneHost) {
  const std::string mpirun = FindTool("mpirun.openmpi");
  if (mpirun.empty()) GTEST_SKIP() << "mpirun.openmpi is not installed (package openmpi-bin)";
  Process run = Launch(mpirun, Mpirun("4"), "mpi", AsRoot());
  run.ExpectExit(0, "weights and metrics");
  EXPECT_THAT(run.output(), HasSubstr("launched by  Open MPI"));
  EXPECT_THAT(run.output(), HasSubstr("unix:ait-"));
  ExpectSameAsOnOneHost("mpi", 4);
}

TEST_F(Mpi, TwoMpirunsAtOnceDoNotMeet) {
  const std::string mpirun = FindTool("mpirun.openmpi");
  if (mpirun.empty()) GTEST_SKIP() << "mpirun.openmpi is not installed (package openmpi-bin)";
  Process first = Launch(mpirun, Mpirun("2"), "first", AsRoot());
  Process second = Launch(mpirun, Mpirun("2"), "second", AsRoot());
  first.ExpectExit(0, "weights and metrics");
  second.ExpectExit(0, "weights and metrics");
}

TEST_F(Mpi, MpirunTellsWhyARankFailed) {
  const std::string mpirun = FindTool("mpirun.openmpi");
  if (mpirun.empty()) GTEST_SKIP() << "mpirun.openmpi is not installed (package openmpi-bin)";
  auto environment = AsRoot();
  environment["RANK"] = "0";  // left over, the same for all ranks
  environment["WORLD_SIZE"] = "2";
  Process run = Launch(mpirun, Mpirun("2"), "contradiction", environment);
  EXPECT_NE(run.Wait().code, 0);
  EXPECT_THAT(run.output(), HasSubstr("contradict each other"));
}

TEST_F(Mpi, MpiexecOfMpichNeedsNoAddressOnOneHost) {
  const std::string mpiexec = FindTool("mpiexec.hydra");
  if (mpiexec.empty()) GTEST_SKIP() << "mpiexec.hydra is not installed (package mpich)";
  Process run = Launch(mpiexec, {"-n", "2"}, "hydra");
  run.ExpectExit(0, "weights and metrics");
  EXPECT_THAT(run.output(), HasSubstr("launched by  PMI"));
  ExpectSameAsOnOneHost("hydra", 2);
}

}  // namespace
}  // namespace ait::testing

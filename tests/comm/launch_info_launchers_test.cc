// SPDX-License-Identifier: Apache-2.0
// LaunchInfo under the launchers of clusters; the variables are those that they were seen to set.
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "ait/comm/world.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

using Variables = std::map<std::string, std::string>;

Env EnvOf(const Variables& variables) {
  return Env::From([&](const char* name) -> Env::Value {
    const auto found = variables.find(name);
    return found == variables.end() ? Env::Value() : Env::Value(found->second);
  });
}

Variables With(Variables variables, const Variables& changes) {
  for (const auto& [name, value] : changes) variables[name] = value;
  return variables;
}

StatusOr<LaunchInfo> Read(const Variables& variables) {
  return LaunchInfo::FromEnv(EnvOf(variables));
}

/// Where a value came from and what it overruled: "SOURCE | OVERRULED".
std::string Why(const LaunchInfo& info, const std::string& what) {
  for (const LaunchDecision& decision : info.decisions) {
    if (decision.what == what) return decision.source + " | " + decision.overruled;
  }
  return "no decision about " + what;
}

// Open MPI 4.1.4, `mpirun -n 4` on one host.
const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "4"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                            {"PMIX_RANK", "1"},
                            {"PMIX_NAMESPACE", "1143996417"},
                            {"OMPI_MCA_orte_precondition_transports", "ebc1-cdbb"}};
// MPICH 4.0, `mpiexec.hydra -n 2`.
const Variables kHydra = {{"PMI_RANK", "1"},
                          {"PMI_SIZE", "2"},
                          {"MPI_LOCALRANKID", "1"},
                          {"MPI_LOCALNRANKS", "2"},
                          {"PMI_FD", "8"}};
// Slurm 22.05, `srun -N 2 -n 3` in a job of 8 tasks.
const Variables kSlurm = {{"SLURM_JOB_ID", "17"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_PROCID", "1"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_NODEID", "0"},
                          {"SLURM_STEP_NUM_TASKS", "3"},
                          {"SLURM_STEP_NUM_NODES", "2"},
                          {"SLURM_STEP_NODELIST", "n[2-3]"},
                          {"SLURM_STEP_TASKS_PER_NODE", "2,1"},
                          {"SLURM_NTASKS", "8"}};
const Variables kKubeflow = {{"PET_NNODES", "4"},          {"PET_NPROC_PER_NODE", "1"},
                             {"PET_NODE_RANK", "3"},       {"PET_MASTER_ADDR", "job-node-0-0.job"},
                             {"PET_MASTER_PORT", "29500"}, {"JOB_COMPLETION_INDEX", "3"}};
const Variables kKubernetes = {
    {"JOB_COMPLETION_INDEX", "2"}, {"WORLD_SIZE", "3"}, {"MASTER_ADDR", "train-workers-0-0.train"}};

TEST(LaunchInfo, OpenMpiOnOneHostMeetsUnderTheNameOfTheJob) {
  ASSERT_OK_AND_ASSIGN(const LaunchInfo info, Read(kOpenMpi));
  EXPECT_EQ(info.launched_by, LaunchedBy::kOpenMpi);
  EXPECT_EQ(info.rank, Rank(1));
  EXPECT_EQ(info.size, WorldSize(4));
  EXPECT_EQ(info.local_rank, Rank(1));
  EXPECT_EQ(info.local_size, WorldSize(4));
  EXPECT_THAT(info.master_address, AllOf(StartsWith("unix:"), HasSubstr("ebc1-cdbb")));
  EXPECT_THAT(info.run_id, HasSubstr("ebc1-cdbb"));
  EXPECT_EQ(Why(info, "rank"), "OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE | ");
  ASSERT_OK_AND_ASSIGN(
      const LaunchInfo other,
      Read(With(kOpenMpi, {{"OMPI_MCA_orte_precondition_transports", std::string(200, 'k')}})));
  EXPECT_NE(other.master_address, info.master_address);
  EXPECT_LT(other.master_address.size(), 108u) << "what the kernel takes";
}

TEST(LaunchInfo, APortAloneIsOneOfThisHost) {
  ASSERT_OK_AND_ASSIGN(const LaunchInfo info, Read(With(kOpenMpi, {{"MASTER_PORT", "7"}})));
  EXPECT_EQ(info.master_address, "127.0.0.1");
  EXPECT_EQ(info.master_port, 7);
  EXPECT_EQ(Why(info, "master"), "one host, MASTER_PORT | ");
}

TEST(LaunchInfo, OpenMpiOnSeveralHostsNeedsTheMaster) {
  const Variables two = With(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_SIZE", "2"}});
  EXPECT_THAT(Read(two), StatusIs(StatusCode::kInvalidArgument, HasSubstr("-x MASTER_ADDR=HOST")));
  ASSERT_OK_AND_ASSIGN(const LaunchInfo info, Read(With(two, {{"MASTER_ADDR", "a"}})));
  EXPECT_EQ(info.master_address, "a");
  EXPECT_GE(info.master_port, 10'000);
  EXPECT_LT(info.master_port, 30'000);
  EXPECT_EQ(info.other_ports.size(), 7u);
  ASSERT_OK_AND_ASSIGN(const LaunchInfo given,
                       Read(With(two, {{"MASTER_ADDR", "a"}, {"MASTER_PORT", "7"}})));
  EXPECT_EQ(given.master_port, 7);
  EXPECT_TRUE(given.other_ports.empty());
}

TEST(LaunchInfo, MpirunInsideAnAllocationOfSlurmIsMpirun) {
  // SLURM_PROCID is that of the daemon of mpirun.
  ASSERT_OK_AND_ASSIGN(const LaunchInfo info,
                       Read(With(With(kSlurm, kOpenMpi), {{"SLURM_PROCID", "0"}})));
  EXPECT_EQ(info.launched_by, LaunchedBy::kOpenMpi);
  EXPECT_EQ(info.rank, Rank(1));
  EXPECT_THAT(Why(info, "launched by"), HasSubstr("SLURM_STEP_ID=0"));
  EXPECT_THAT(Why(info, "rank"), HasSubstr("| SLURM_PROCID=0, SLURM_STEP_NUM_TASKS=3"));
}

TEST(LaunchInfo, HydraOnOneHostMeetsByTheProcessOfTheLauncher) {
  ASSERT_OK_AND_ASSIGN(const LaunchInfo info, Read(kHydra));
  EXPECT_EQ(info.launched_by, LaunchedBy::kPmi);
  EXPECT_EQ(info.local_rank, Rank(1));
  EXPECT_EQ(info.master_address, "unix:");
  ASSERT_OK_AND_ASSIGN(const LaunchInfo cray, Read({{"PMI_RANK", "5"},
                                                    {"PMI_SIZE", "8"},
                                                    {"PMI_LOCAL_RANK", "1"},
                                                    {"PMI_LOCAL_SIZE", "4"},
                                                    {"MASTER_ADDR", "nid1"},
                                                    {"MASTER_PORT", "9"}}));
  EXPECT_EQ(cray.local_size, WorldSize(4));
  EXPECT_TRUE(cray.local_is_given);
  EXPECT_THAT(Read({{"PMI_RANK", "0"}, {"PMI_SIZE", "2"}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("MASTER_ADDR HOST")));
}

TEST(LaunchInfo, PmixTellsNoSize) {
  const Variables pmix = {{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "prterun-a-9@1"}};
  EXPECT_THAT(Read(pmix), StatusIs(StatusCode::kInvalidArgument, HasSubstr("WORLD_SIZE not set")));
  ASSERT_OK_AND_ASSIGN(const LaunchInfo info,
                       Read(With(pmix, {{"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}})));
  EXPECT_EQ(info.launched_by, LaunchedBy::kPmix);
  EXPECT_FALSE(info.local_is_given);
}

TEST(LaunchInfo, SlurmsStepComesBeforeItsJob) {
  ASSERT_OK_AND_ASSIGN(const LaunchInfo info, Read(kSlurm));
  EXPECT_EQ(info.launched_by, LaunchedBy::kSlurm);
  EXPECT_EQ(info.size, WorldSize(3));
  EXPECT_EQ(info.local_size, WorldSize(2));
  EXPECT_EQ(info.master_address, "n2");
  EXPECT_GE(info.master_port, 10'000);
  EXPECT_THAT(Why(info, "rank"), HasSubstr("SLURM_STEP_NUM_TASKS | SLURM_NTASKS=8"));
  EXPECT_THAT(Why(info, "master"), HasSubstr("first of SLURM_STEP_NODELIST"));
  ASSERT_OK_AND_ASSIGN(const LaunchInfo again, Read(With(kSlurm, {{"SLURM_RESTART_COUNT", "1"}})));
  EXPECT_NE(again.run_id, info.run_id) << "a requeued job is another attempt";
  ASSERT_OK_AND_ASSIGN(
      const LaunchInfo last,
      Read(With(kSlurm, {{"SLURM_PROCID", "2"}, {"SLURM_LOCALID", "0"}, {"SLURM_NODEID", "1"}})));
  EXPECT_EQ(last.local_size, WorldSize(1));
  EXPECT_EQ(last.master_port, info.master_port);
  ASSERT_OK_AND_ASSIGN(const LaunchInfo given, Read(With(kSlurm, {{"MASTER_ADDR", "head"}})));
  EXPECT_EQ(given.master_address, "head");
}

TEST(LaunchInfo, SlurmOnOneNodeMeetsUnderTheNameOfTheStep) {
  ASSERT_OK_AND_ASSIGN(const LaunchInfo info,
                       Read(With(kSlurm, {{"SLURM_STEP_NUM_NODES", "1"},
                                          {"SLURM_STEP_NODELIST", "n2"},
                                          {"SLURM_STEP_TASKS_PER_NODE", "3"}})));
  EXPECT_THAT(info.master_address, AllOf(StartsWith("unix:"), HasSubstr("17.0")));
}

TEST(LaunchInfo, PmiOfSlurmItselfIsSlurm) {
  ASSERT_OK_AND_ASSIGN(
      const LaunchInfo pmi2,
      Read(With(kSlurm, {{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}, {"PMI_JOBID", "17.0"}})));
  EXPECT_EQ(pmi2.launched_by, LaunchedBy::kSlurm);
  ASSERT_OK_AND_ASSIGN(
      const LaunchInfo pmix,
      Read(With(kSlurm, {{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "slurm.pmix.17.0"}})));
  EXPECT_EQ(pmix.launched_by, LaunchedBy::kSlurm);
  // mpiexec.hydra inside an allocation.
  ASSERT_OK_AND_ASSIGN(const LaunchInfo hydra, Read(With(kSlurm, kHydra)));
  EXPECT_EQ(hydra.launched_by, LaunchedBy::kPmi);
}

TEST(LaunchInfo, ABatchScriptIsNoTask) {
  ASSERT_OK_AND_ASSIGN(const LaunchInfo info, Read({{"SLURM_JOB_ID", "17"},
                                                    {"SLURM_PROCID", "0"},
                                                    {"SLURM_LOCALID", "0"},
                                                    {"SLURM_NTASKS", "4"}}));
  EXPECT_EQ(info.launched_by, LaunchedBy::kNobody);
  EXPECT_EQ(info.size, WorldSize(1));
  EXPECT_THAT(Why(info, "launched by"), HasSubstr("without SLURM_STEP_ID"));
}

TEST(LaunchInfo, KubeflowTellsTheProgramWhatItTellsTorchrun) {
  ASSERT_OK_AND_ASSIGN(const LaunchInfo info, Read(kKubeflow));
  EXPECT_EQ(info.launched_by, LaunchedBy::kKubeflow);
  EXPECT_EQ(info.rank, Rank(3));
  EXPECT_EQ(info.size, WorldSize(4));
  EXPECT_EQ(info.local_size, WorldSize(1));
  EXPECT_EQ(info.master_address, "job-node-0-0.job");
  EXPECT_EQ(info.master_port, 29500);
  EXPECT_OK(Read(With(kKubeflow, {{"PET_NPROC_PER_NODE", "auto"}})));
  EXPECT_THAT(Read(With(kKubeflow, {{"PET_NPROC_PER_NODE", "8"}})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("ait run -n 8 --nodes")));
  EXPECT_THAT(Read(With(kKubeflow, {{"PET_NNODES", "1:4"}})),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("PET_NNODES is not a whole")));
}

TEST(LaunchInfo, AnIndexedJobNeedsItsSizeAndMaster) {
  ASSERT_OK_AND_ASSIGN(const LaunchInfo info, Read(kKubernetes));
  EXPECT_EQ(info.launched_by, LaunchedBy::kKubernetes);
  EXPECT_EQ(info.rank, Rank(2));
  EXPECT_EQ(info.master_port, 29400);
  EXPECT_EQ(info.local_size, WorldSize(1));
  EXPECT_THAT(Read({{"JOB_COMPLETION_INDEX", "2"}}),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("WORLD_SIZE not set"), HasSubstr("AIT_LAUNCHER=alone"))));
  EXPECT_THAT(Read({{"JOB_COMPLETION_INDEX", "2"}, {"WORLD_SIZE", "3"}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("MASTER_ADDR not set")));
}

TEST(LaunchInfo, TheAttemptKeepsRestartedPodsApart) {
  ASSERT_OK_AND_ASSIGN(const LaunchInfo first, Read(With(kKubernetes, {{"AIT_ATTEMPT", "0"}})));
  ASSERT_OK_AND_ASSIGN(const LaunchInfo second, Read(With(kKubernetes, {{"AIT_ATTEMPT", "1"}})));
  EXPECT_NE(first.run_id, second.run_id);
}

TEST(LaunchInfo, ByHandOverrulesSlurmAndKubernetes) {
  const Variables hand = {
      {"RANK", "5"}, {"WORLD_SIZE", "6"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "9"}};
  for (const Variables& other : {kSlurm, kKubeflow, kKubernetes}) {
    ASSERT_OK_AND_ASSIGN(const LaunchInfo info, Read(With(other, hand)));
    EXPECT_EQ(info.launched_by, LaunchedBy::kHand);
    EXPECT_EQ(info.rank, Rank(5));
  }
}

TEST(LaunchInfo, ByHandAgainstMpirunIsAConflictUntilItIsDecided) {
  const Variables both = With(
      kOpenMpi, {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "a"}, {"MASTER_PORT", "9"}});
  EXPECT_THAT(Read(both),
              StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("RANK=0, WORLD_SIZE=2 and "),
                                                           HasSubstr("OMPI_COMM_WORLD_RANK=1"),
                                                           HasSubstr("AIT_LAUNCHER=openmpi"))));
  ASSERT_OK_AND_ASSIGN(const LaunchInfo hand, Read(With(both, {{"AIT_LAUNCHER", "hand"}})));
  EXPECT_EQ(hand.rank, Rank(0));
  ASSERT_OK_AND_ASSIGN(const LaunchInfo mpi, Read(With(both, {{"AIT_LAUNCHER", "openmpi"}})));
  EXPECT_EQ(mpi.rank, Rank(1));
  EXPECT_THAT(Why(mpi, "launched by"), HasSubstr("AIT_LAUNCHER | RANK=0"));
  ASSERT_OK_AND_ASSIGN(const LaunchInfo alone, Read(With(both, {{"AIT_LAUNCHER", "alone"}})));
  EXPECT_EQ(alone.size, WorldSize(1));
  EXPECT_OK(Read(With(both, {{"RANK", "1"}, {"WORLD_SIZE", "4"}})));
}

struct Case {
  Variables variables;
  std::vector<std::string> says;
};

TEST(LaunchInfo, NamesWhatIsWrongUnderAnyLauncher) {
  const std::vector<Case> cases = {
      {With(kOpenMpi, {{"OMPI_COMM_WORLD_RANK", "4"}}),
       {"OMPI_COMM_WORLD_RANK 4 is not below OMPI_COMM_WORLD_SIZE 4"}},
      {With(kOpenMpi, {{"OMPI_COMM_WORLD_LOCAL_RANK", "7"}}),
       {"OMPI_COMM_WORLD_LOCAL_RANK 7 is not below OMPI_COMM_WORLD_LOCAL_SIZE 4"}},
      {With(kOpenMpi, {{"OMPI_COMM_WORLD_SIZE", "four"}}),
       {"OMPI_COMM_WORLD_SIZE is not a whole number"}},
      {{{"OMPI_COMM_WORLD_RANK", "0"}}, {"OMPI_COMM_WORLD_SIZE not set", "Open MPI started"}},
      {With(kHydra, {{"PMI_RANK", "2"}}), {"PMI_RANK 2 is not below PMI_SIZE 2"}},
      {With(kHydra, {{"PMI_FD", "x"}}), {"PMI_FD is not a whole number"}},
      {With(kSlurm, {{"SLURM_PROCID", "3"}}),
       {"SLURM_PROCID 3 is not below SLURM_STEP_NUM_TASKS 3"}},
      {With(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "2(x"}}),
       {"SLURM_STEP_TASKS_PER_NODE: \"2(x\" is no list of tasks"}},
      {With(kSlurm, {{"SLURM_STEP_TASKS_PER_NODE", "2(x3)"}}),
       {"SLURM_STEP_TASKS_PER_NODE 2(x3) makes 6 tasks, but the step has 3"}},
      {With(kSlurm, {{"SLURM_STEP_NODELIST", "n[2-"}}),
       {"SLURM_STEP_NODELIST: \"n[2-\" is no list of nodes"}},
      {With(kSlurm, {{"SLURM_STEP_NODELIST", "n[2-5]"}}),
       {"SLURM_STEP_NODELIST n[2-5] has 4 nodes, but SLURM_STEP_NUM_NODES is 2"}},
      {With(kSlurm, {{"SLURM_NODEID", "2"}}), {"SLURM_NODEID 2 is not below the 2 nodes"}},
      {With(kSlurm, {{"SLURM_LOCALID", "2"}}), {"SLURM_LOCALID 2 is not below the 2 tasks"}},
      {With(kSlurm, {{"MASTER_ADDR", "127.0.0.1"}}),
       {"MASTER_ADDR 127.0.0.1 is the loopback interface"}},
      {With(kKubeflow, {{"PET_NODE_RANK", "4"}}), {"PET_NODE_RANK 4 is not below PET_NNODES 4"}},
      {With(kKubeflow, {{"PET_MASTER_PORT", "x"}}), {"PET_MASTER_PORT is not a whole number"}},
      {With(kKubernetes, {{"MASTER_ADDR", "localhost"}}),
       {"MASTER_ADDR localhost is the loopback interface", "2 ranks of other hosts"}},
      {{{"AIT_LAUNCHER", "lsf"}}, {"AIT_LAUNCHER is none of alone, hand"}},
      {{{"AIT_LAUNCHER", "slurm"}}, {"SLURM_PROCID, SLURM_STEP_NUM_TASKS not set"}},
      {With(kSlurm, {{"AIT_ATTEMPT", std::string(300, 'x')}}), {"bytes; allowed are 255"}},
  };
  for (const Case& entry : cases) {
    for (const std::string& text : entry.says) {
      EXPECT_THAT(Read(entry.variables), StatusIs(StatusCode::kInvalidArgument, HasSubstr(text)));
    }
  }
}

}  // namespace
}  // namespace ait

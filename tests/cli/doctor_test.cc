// SPDX-License-Identifier: Apache-2.0
// `ait doctor net` from outside. What the rules say is tested in tests/comm/net_lint_test.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "support/process.h"

namespace ait::testing {
namespace {

using ::testing::HasSubstr;

// A home without NCCL's file, and no variable of this machine that the doctor could find fault with.
Process Doctor(std::vector<std::string> options,
               std::map<std::string, std::string> environment = {}) {
  options.insert(options.begin(), {"doctor", "net"});
  environment.insert({{"HOME", "/no/such/home"}, {"OMP_NUM_THREADS", "1"}});
  return Process::Spawn(
      {.program = AIT_PROGRAM, .args = std::move(options), .environment = std::move(environment)});
}

nlohmann::json Read(const std::string& path) {
  std::ifstream file(path);
  return nlohmann::json::parse(file);
}

TEST(AitDoctor, LooksAtThisHostWithoutRanks) {
  Process doctor = Doctor({}, {{"NCCL_BUFFSIZE", "0x1000"}});
  doctor.ExpectExit(0, "verdict: 0 errors");
  EXPECT_THAT(doctor.standard_output(), HasSubstr("interface lo"));
  EXPECT_THAT(doctor.standard_output(),
              HasSubstr("NCCL_BUFFSIZE=0x1000  means: 4096  (environment)"));
  EXPECT_THAT(doctor.standard_output(), HasSubstr("next: ait doctor net -n 2"));
}

TEST(AitDoctor, AnErrorIsExitCodeOneAndTheNextCommand) {
  Process doctor = Doctor({}, {{"NCCL_IB_DISABLE", "true"}});
  doctor.ExpectExit(1, "error: NCCL_IB_DISABLE: 'true' is not a number and is read as 0");
  EXPECT_THAT(doctor.standard_output(), HasSubstr("verdict: 1 error"));
  EXPECT_THAT(doctor.standard_output(), HasSubstr("NCCL_IB_DISABLE: write 1"));
}

TEST(AitDoctor, AWarningIsNoError) {
  Doctor({}, {{"NCCL_SOKET_IFNAME", "lo"}}).ExpectExit(0, "did you mean NCCL_SOCKET_IFNAME?");
}

TEST(AitDoctor, ReadsTheFilesOfNccl) {
  const TempDir folder;
  std::ofstream(folder / ".nccl.conf") << "NCCL_DEBUG = INFO\n";
  Process doctor = Doctor({}, {{"HOME", folder.path()}});
  doctor.ExpectExit(1, "the name has a space in it");
  EXPECT_THAT(doctor.standard_output(), HasSubstr("files of NCCL: " + (folder / ".nccl.conf")));
}

TEST(AitDoctor, MeasuresEveryPairAndWritesJson) {
  const TempDir folder;
  const std::string path = folder / "net.json";
  Doctor({"-n", "3", "--json", path}).ExpectExit(0, "next: ait bench comm");
  const nlohmann::json report = Read(path);
  EXPECT_EQ(report["errors"], 0);
  ASSERT_EQ(report["hosts"].size(), 1u);
  EXPECT_EQ(report["hosts"][0]["ranks"], nlohmann::json({0, 1, 2}));
  ASSERT_EQ(report["pairs"].size(), 6u);
  int shared = 0;
  for (const auto& pair : report["pairs"]) {
    EXPECT_EQ(pair["error"], "") << pair;
    EXPECT_GT(pair["latency_us"], 0) << pair;
    EXPECT_GT(pair["gb_per_s"], 0) << pair;
    if (!pair.contains("shared_memory")) continue;
    ++shared;
    EXPECT_EQ(pair["shared_memory"]["error"], "") << pair;
    EXPECT_GT(pair["shared_memory"]["latency_us"], 0) << pair;
    EXPECT_GT(pair["shared_memory"]["gb_per_s"], 0) << pair;
  }
  EXPECT_EQ(shared, 3);
}

TEST(AitDoctor, UnderALauncherEachProcessIsOneRank) {
  Process run = Process::Spawn(
      {.program = AIT_PROGRAM,
       .args = {"run", "-n", "2", "-q", "--no-prefix", "--", AIT_PROGRAM, "doctor", "net"},
       .environment = {{"HOME", "/no/such/home"}}});
  run.ExpectExit(0, "rank 1 -> rank 0 at ");
}

TEST(AitDoctor, TellsOfALaunchThatContradictsItself) {
  Doctor({}, {{"RANK", "3"}, {"WORLD_SIZE", "2"}}).ExpectExit(1, "RANK");
}

TEST(AitDoctor, RefusesWhatItDoesNotKnow) {
  Doctor({"-n", "0"}).ExpectExit(2, "-n cannot be '0'");
  Doctor({"extra"}).ExpectExit(2, "takes no argument extra");
  Process::Spawn({.program = AIT_PROGRAM, .args = {"doctor"}})
      .ExpectExit(2, "say what to look at: ait doctor net");
  Doctor({"--json", "/proc/no/such"}).ExpectExit(1, "cannot write /proc/no/such");
}

}  // namespace
}  // namespace ait::testing

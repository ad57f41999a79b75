// SPDX-License-Identifier: Apache-2.0
// What variables mean, on hosts that are made up here.
#include "ait/comm/net_lint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>

#include "support/status_matchers.h"

namespace ait {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

/// A host of a cluster: two Ethernet ports of which one is a prefix of another's name, two adapters.
NetFacts Host() {
  return {.interfaces = {{"lo", true, true, true, {"127.0.0.1"}},
                         {"eth1", true, true, false, {"10.0.0.1"}},
                         {"eth10", true, true, false, {"10.1.0.1"}},
                         {"eth2", false, false, false, {}},
                         {"docker0", true, false, false, {"172.17.0.1"}}},
          .adapters = {"mlx5_0", "mlx5_1", "mlx5_10"},
          .hostname = "node1",
          .hostname_addresses = {"10.0.0.1"},
          .cpus = 16,
          .host_cpus = 16};
}

struct Verdict {
  std::vector<NetFinding> findings;
  std::vector<NetSetting> settings;

  /// "error: text" of every finding about `name`.
  std::vector<std::string> Of(const std::string& name) const {
    std::vector<std::string> texts;
    for (const NetFinding& finding : findings) {
      if (finding.subject != name) continue;
      texts.push_back(std::string(Name(finding.severity)) + ": " + finding.what + "; " +
                      finding.advice);
    }
    return texts;
  }
  std::string Effective(const std::string& name) const {
    for (const NetSetting& setting : settings) {
      if (setting.name == name && setting.in_force) return setting.effective;
    }
    return "not set";
  }
};

Verdict Lint(const NetEnvironment& environment, const NetFacts& facts = Host()) {
  NetSettings settings = ReadNetSettings(environment, "/no/such/nccl.conf");
  Verdict verdict;
  verdict.findings = LintNet(settings, facts);
  verdict.settings = settings.settings;
  return verdict;
}

auto Says(const char* severity, const char* text) {
  return Contains(::testing::AllOf(::testing::StartsWith(severity), HasSubstr(text)));
}

TEST(NetLint, SilentWhereAllIsWell) {
  EXPECT_THAT(Lint({}).findings, IsEmpty());
  const Verdict verdict = Lint({{"NCCL_DEBUG", "warn"},
                                {"NCCL_SOCKET_IFNAME", "=eth1"},
                                {"NCCL_IB_HCA", "=mlx5_0:1,mlx5_1"},
                                {"NCCL_IB_DISABLE", "0"},
                                {"NCCL_BUFFSIZE", "0x400000"},
                                {"GLOO_SOCKET_IFNAME", "eth1"},
                                {"OMP_NUM_THREADS", "16"},
                                {"TORCH_NCCL_BLOCKING_WAIT", "true"},
                                {"PATH", "/bin"},
                                {"OMPI_COMM_WORLD_RANK", "0"}});
  EXPECT_THAT(verdict.findings, IsEmpty());
  EXPECT_EQ(verdict.settings.size(), 8u);
  EXPECT_EQ(verdict.Effective("NCCL_BUFFSIZE"), "4194304");
  EXPECT_EQ(verdict.Effective("NCCL_SOCKET_IFNAME"), "eth1");
  EXPECT_EQ(verdict.Effective("NCCL_IB_HCA"), "mlx5_0, mlx5_1");
}

TEST(NetLint, IntegersAreReadAsNcclReadsThem) {
  for (const char* word : {"true", "yes", "on"}) {
    const Verdict verdict = Lint({{"NCCL_IB_DISABLE", word}});
    EXPECT_THAT(verdict.Of("NCCL_IB_DISABLE"), Says("error", "is read as 0; write 1"));
    EXPECT_EQ(verdict.Effective("NCCL_IB_DISABLE"), "0");
  }
  EXPECT_THAT(Lint({{"NCCL_BUFFSIZE", "4M"}}).Of("NCCL_BUFFSIZE"), Says("error", "is read as 4"));
  EXPECT_THAT(Lint({{"NCCL_NTHREADS", "0512"}}).Of("NCCL_NTHREADS"),
              Says("warning", "is octal and means 330"));
  EXPECT_THAT(Lint({{"NCCL_IB_SL", "16"}}).Of("NCCL_IB_SL"),
              Says("error", "is outside of -1 to 15"));
  EXPECT_THAT(Lint({{"NCCL_BUFFSIZE", "99999999999999999999"}}).Of("NCCL_BUFFSIZE"),
              Says("error", "does not fit"));
  const Verdict empty = Lint({{"NCCL_IB_DISABLE", ""}});
  EXPECT_THAT(empty.findings, IsEmpty());
  EXPECT_EQ(empty.Effective("NCCL_IB_DISABLE"), "as if not set");
}

TEST(NetLint, TellsWhatAWorkaroundCosts) {
  EXPECT_THAT(Lint({{"NCCL_P2P_DISABLE", "1"}}).Of("NCCL_P2P_DISABLE"),
              Says("warning", "switches off copies between GPUs"));
  EXPECT_THAT(Lint({{"NCCL_CUMEM_ENABLE", "0"}}).Of("NCCL_CUMEM_ENABLE"),
              Says("warning", "switches off registered buffers"));
  EXPECT_THAT(Lint({{"NCCL_P2P_DISABLE", "0"}, {"NCCL_CUMEM_ENABLE", "1"}}).findings, IsEmpty());
  EXPECT_THAT(Lint({{"NCCL_IB_GID_INDEX", "3"}}).Of("NCCL_IB_GID_INDEX"),
              Says("warning", "differs from host to host"));
}

TEST(NetLint, InterfacesOfNcclArePrefixes) {
  const Verdict prefix = Lint({{"NCCL_SOCKET_IFNAME", "eth1"}});
  EXPECT_THAT(prefix.Of("NCCL_SOCKET_IFNAME"),
              Says("warning", "it also means eth10; write =eth1 for"));
  EXPECT_EQ(prefix.Effective("NCCL_SOCKET_IFNAME"), "eth1, eth10");
  EXPECT_EQ(Lint({{"NCCL_SOCKET_IFNAME", "^lo,docker"}}).Effective("NCCL_SOCKET_IFNAME"),
            "eth1, eth10");
  EXPECT_THAT(Lint({{"NCCL_SOCKET_IFNAME", "^lo,docker"}}).findings, IsEmpty());
  EXPECT_EQ(Lint({{"NCCL_SOCKET_IFNAME", "^=eth1,lo"}}).Effective("NCCL_SOCKET_IFNAME"),
            "eth10, docker0");
  EXPECT_THAT(Lint({{"NCCL_SOCKET_IFNAME", "ib0"}}).Of("NCCL_SOCKET_IFNAME"),
              ::testing::AllOf(Says("error", "fits no interface of this host; there are: lo, eth1"),
                               Says("error", "leaves no interface that is up")));
  EXPECT_THAT(Lint({{"NCCL_SOCKET_IFNAME", "eth2"}}).Of("NCCL_SOCKET_IFNAME"),
              Says("error", "leaves no interface that is up"));
  EXPECT_THAT(Lint({{"NCCL_SOCKET_IFNAME", "e,=eth1"}}).Of("NCCL_SOCKET_IFNAME"),
              Says("warning", "is too short; NCCL ignores it"));
}

TEST(NetLint, AdaptersMustExist) {
  EXPECT_THAT(Lint({{"NCCL_IB_HCA", "rdma0"}}).Of("NCCL_IB_HCA"),
              Says("error", "falls back to TCP in silence; /sys/class/infiniband has: mlx5_0"));
  EXPECT_THAT(Lint({{"NCCL_IB_HCA", "mlx5_1"}}).Of("NCCL_IB_HCA"),
              Says("warning", "it also means mlx5_10"));
  EXPECT_THAT(Lint({{"NCCL_IB_HCA", "mlx5_0:1,mlx9"}}).Of("NCCL_IB_HCA"),
              Says("error", "'mlx9' of 'mlx5_0:1,mlx9' is no adapter"));
  EXPECT_EQ(Lint({{"NCCL_IB_HCA", "^mlx5_1"}}).Effective("NCCL_IB_HCA"), "mlx5_0");
  NetFacts none = Host();
  none.adapters.clear();
  EXPECT_THAT(Lint({{"NCCL_IB_HCA", "mlx5"}}, none).Of("NCCL_IB_HCA"), Says("error", "has: none"));
}

TEST(NetLint, GlooTakesNamesAndNotNcclsSyntax) {
  EXPECT_THAT(Lint({{"GLOO_SOCKET_IFNAME", "^lo"}}).Of("GLOO_SOCKET_IFNAME"),
              Says("error", "is the syntax of NCCL"));
  EXPECT_THAT(Lint({{"GLOO_SOCKET_IFNAME", "eth"}}).Of("GLOO_SOCKET_IFNAME"),
              Says("error", "'eth' of 'eth' is no interface"));
  EXPECT_THAT(Lint({{"GLOO_SOCKET_IFNAME", "eth2"}}).Of("GLOO_SOCKET_IFNAME"),
              Says("error", "is down"));
  EXPECT_THAT(Lint({{"GLOO_SOCKET_IFNAME", "lo"}}).findings, IsEmpty());
  EXPECT_THAT(Lint({{"GLOO_SOCKET_IFNAME", "lo"}, {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "2"}})
                  .Of("GLOO_SOCKET_IFNAME"),
              Says("error", "the run has several hosts"));
}

TEST(NetLint, FindsTheNameThatWasMeant) {
  EXPECT_THAT(Lint({{"NCCL_SOKET_IFNAME", "eth1"}}).Of("NCCL_SOKET_IFNAME"),
              Says("warning", "did you mean NCCL_SOCKET_IFNAME?"));
  EXPECT_THAT(Lint({{"OMP_NUM_THREAD", "1"}}).Of("OMP_NUM_THREAD"),
              Says("warning", "did you mean OMP_NUM_THREADS?"));
  EXPECT_THAT(Lint({{"NCCL_BLOCKING_WAIT", "1"}}).Of("NCCL_BLOCKING_WAIT"),
              Says("warning", "set TORCH_NCCL_BLOCKING_WAIT"));
  EXPECT_THAT(Lint({{"NCCL_ZZZZZZZZZZZZZZZ", "1"}}).Of("NCCL_ZZZZZZZZZZZZZZZ"),
              Says("note", "is ignored in silence"));
}

TEST(NetLint, WordsOfNccl) {
  EXPECT_THAT(Lint({{"NCCL_DEBUG", "DEBUG"}}).Of("NCCL_DEBUG"), Says("error", "is no level"));
  EXPECT_THAT(Lint({{"NCCL_DEBUG", "INFO"}}).Of("NCCL_DEBUG"), Says("note", "from every rank"));
  EXPECT_THAT(Lint({{"NCCL_DEBUG", "INFO"}, {"NCCL_DEBUG_FILE", "log.%h.%p"}}).findings, IsEmpty());
  EXPECT_THAT(Lint({{"NCCL_DEBUG_SUBSYS", "INIT,NETT"}}).Of("NCCL_DEBUG_SUBSYS"),
              Says("warning", "'nett' of"));
  EXPECT_THAT(Lint({{"NCCL_ALGO", "ring,butterfly"}}).Of("NCCL_ALGO"),
              Says("error", "'butterfly' of"));
  EXPECT_THAT(Lint({{"NCCL_ALGO", "ring;allreduce:tree"}}).Of("NCCL_ALGO"), Says("note", "equal"));
  EXPECT_THAT(Lint({{"NCCL_ALGO", "allreduce:tree;ring"}}).Of("NCCL_ALGO"),
              Says("error", "lacks its collective"));
  EXPECT_THAT(Lint({{"NCCL_PROTO", "^LL128,simple"}}).Of("NCCL_PROTO").size(), 1u);
}

TEST(NetLint, Threads) {
  EXPECT_THAT(Lint({{"OMP_NUM_THREADS", "8"}, {"LOCAL_WORLD_SIZE", "4"}}).Of("OMP_NUM_THREADS"),
              Says("warning", "is 32 threads on 16 CPUs; set it to 4"));
  EXPECT_THAT(Lint({{"OMP_NUM_THREADS", "1"}, {"LOCAL_WORLD_SIZE", "4"}}).Of("OMP_NUM_THREADS"),
              Says("note", "set it to 4"));
  NetFacts bound = Host();
  bound.cpus = 4;  // of 16: they are this rank's
  EXPECT_THAT(Lint({{"OMP_NUM_THREADS", "4"}, {"LOCAL_WORLD_SIZE", "4"}}, bound).findings,
              IsEmpty());
  EXPECT_THAT(Lint({{"OMP_NUM_THREADS", "8"}}, bound).Of("OMP_NUM_THREADS"),
              Says("warning", "for 1 rank is 8 threads on 4 CPUs; set it to 4"));
  EXPECT_THAT(Lint({{"OMP_NUM_THREADS", "all"}}).Of("OMP_NUM_THREADS"),
              Says("error", "is no number of threads"));
}

TEST(NetLint, TheHostAndTheLaunch) {
  NetFacts debian = Host();
  debian.hostname_addresses = {"127.0.1.1"};
  EXPECT_THAT(Lint({}, debian).Of("host"), Says("note", "node1, resolves to 127.0.1.1"));
  const NetEnvironment two_hosts = {
      {"WORLD_SIZE", "4"}, {"LOCAL_WORLD_SIZE", "2"}, {"MASTER_ADDR", "localhost"}};
  EXPECT_THAT(Lint(two_hosts, debian).Of("host"), Says("warning", "no other host reaches it"));
  EXPECT_THAT(Lint(two_hosts, debian).Of("MASTER_ADDR"), Says("error", "is this host itself"));
  debian.hostname_addresses.clear();
  EXPECT_THAT(Lint({}, debian).Of("host"), Says("warning", "does not resolve"));
  EXPECT_THAT(Lint({{"TORCHELASTIC_USE_AGENT_STORE", "True"}}).Of("TORCHELASTIC_USE_AGENT_STORE"),
              Says("error", "is left from another launch"));
  EXPECT_THAT(Lint({{"TORCH_DISTRIBUTED_DEBUG", "DETAIL"}}).Of("TORCH_DISTRIBUTED_DEBUG"),
              Says("warning", "twice"));
}

TEST(NetLint, ErrorsComeFirst) {
  const Verdict verdict =
      Lint({{"NCCL_ALGO", "ring"}, {"NCCL_P2P_DISABLE", "1"}, {"NCCL_DEBUG", "x"}});
  EXPECT_TRUE(std::is_sorted(
      verdict.findings.begin(), verdict.findings.end(),
      [](const NetFinding& a, const NetFinding& b) { return a.severity > b.severity; }));
  EXPECT_EQ(verdict.findings.front().severity, NetSeverity::kError);
}

class NetFiles : public ::testing::Test {
 protected:
  NetFiles() { std::filesystem::create_directories(folder_ / "home"); }
  ~NetFiles() override { std::filesystem::remove_all(folder_); }
  std::string Write(const std::string& name, const std::string& text) {
    std::ofstream(folder_ / name) << text;
    return folder_ / name;
  }
  const std::filesystem::path folder_ =
      std::filesystem::path(::testing::TempDir()) / ("ait_net_lint." + std::to_string(getpid()));
};

TEST_F(NetFiles, TheEnvironmentWinsThenTheUserThenTheSystem) {
  const std::string user =
      Write("home/.nccl.conf", "# NCCL_DEBUG=TRACE\nNCCL_DEBUG=WARN\nNCCL_NTHREADS=64\n");
  const std::string system = Write("system", "NCCL_NTHREADS=128\nNCCL_IB_SL=3\nno equals sign\n");
  NetSettings settings =
      ReadNetSettings({{"HOME", folder_ / "home"}, {"NCCL_DEBUG", "VERSION"}}, system);
  EXPECT_THAT(settings.files, ::testing::ElementsAre(user, system));
  Verdict verdict{LintNet(settings, Host()), settings.settings};
  EXPECT_EQ(verdict.Effective("NCCL_DEBUG"), "VERSION");
  EXPECT_EQ(verdict.Effective("NCCL_NTHREADS"), "64");
  EXPECT_EQ(verdict.Effective("NCCL_IB_SL"), "3");
  EXPECT_THAT(verdict.Of("NCCL_DEBUG"), Says("note", "is also set to 'WARN' by "));
  EXPECT_THAT(verdict.Of("NCCL_NTHREADS"), Says("note", "is also set to '128' by "));
}

TEST_F(NetFiles, ANamedFileStandsForTheUsers) {
  Write("home/.nccl.conf", "NCCL_IB_SL=1\n");
  const std::string named = Write("named", "NCCL_IB_SL = 2\nNCCL_IB_TC=true\n");
  NetSettings settings = ReadNetSettings({{"HOME", folder_ / "home"}, {"NCCL_CONF_FILE", named}},
                                         "/no/such/nccl.conf");
  EXPECT_THAT(settings.files, ::testing::ElementsAre(named));
  Verdict verdict{LintNet(settings, Host()), settings.settings};
  EXPECT_THAT(verdict.Of("NCCL_IB_SL "), Says("error", "the name has a space in it"));
  EXPECT_THAT(verdict.Of("NCCL_IB_TC"), Says("error", "is read as 0"));
  EXPECT_THAT(verdict.Of("NCCL_IB_TC"), Says("error", named.c_str()));
}

TEST_F(NetFiles, ReadsThisHost) {
  std::filesystem::create_directories(folder_ / "class/infiniband/mlx5_0");
  const StatusOr<NetFacts> facts = ReadNetFacts(folder_);
  ASSERT_OK(facts.status());
  EXPECT_THAT(facts->adapters, ::testing::ElementsAre("mlx5_0"));
  EXPECT_GT(facts->cpus, 0);
  EXPECT_NE(facts->hostname, "");
  const auto lo = std::find_if(facts->interfaces.begin(), facts->interfaces.end(),
                               [](const NetInterface& i) { return i.name == "lo"; });
  ASSERT_NE(lo, facts->interfaces.end());
  EXPECT_TRUE(lo->loopback);
}

}  // namespace
}  // namespace ait

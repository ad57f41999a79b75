// SPDX-License-Identifier: Apache-2.0
#include "cli/doctor.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cxxopts.hpp>
#include <fstream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ait/comm/net_lint.h"
#include "ait/comm/tcp_store.h"
#include "ait/comm/transport.h"
#include "ait/comm/world.h"
#include "ait/launch/launcher.h"
#include "cli/doctor_report.h"
#include "cli/net_probe.h"
#include "cli/program.h"
#include "cli/topic.h"

namespace ait::cli {
namespace {

constexpr char kExamples[] = R"(
Reads the variables of NCCL, Gloo, OpenMP and torchrun as those libraries read them, with NCCL's files,
and compares names of interfaces and adapters with this host. With ranks, it also measures each pair: who
reaches whom, latency and bandwidth over TCP, and shared memory inside a host.

Under a launcher each process is one rank, and each host is looked at.
Exit code: 0 if there is no error (there may be warnings); 1 if there is one; 2 for wrong usage.

Examples:
  ait doctor net                                this host and its variables
  ait doctor net -n 2 --json net.json           also two ranks of this host
  ait run -n 2 -- ait doctor net                the same; on several hosts as `ait run` does it
)";

/// A run that only needs its control plane.
class NoTransport final : public Transport {
 public:
  explicit NoTransport(const LaunchInfo& launch) : rank_(launch.rank), size_(launch.size) {}
  std::string_view name() const override { return "none"; }
  Rank rank() const override { return rank_; }
  WorldSize size() const override { return size_; }
  Work Start(Operation) override { return Work(UnimplementedError("this run moves no data")); }
  StatusOr<std::unique_ptr<Transport>> Subgroup(std::span<const Rank>, std::uint64_t,
                                                Deadline) override {
    return UnimplementedError("this run moves no data");
  }
  void Abort(const Status&) override {}

 private:
  const Rank rank_;
  const WorldSize size_;
};

class NoTransportProvider final : public TransportProvider {
 public:
  std::string_view name() const override { return "none"; }
  StatusOr<std::unique_ptr<Store>> JoinAgentStore(const LaunchInfo&, Deadline) override {
    return UnimplementedError(
        "the store of torchrun's agent needs libtorch, which this program does not load; take "
        "`ait run`");
  }
  StatusOr<std::unique_ptr<Transport>> Connect(const LaunchInfo& launch, std::shared_ptr<TcpStore>,
                                               Deadline) override {
    return std::make_unique<NoTransport>(launch);
  }
};

/// Also of variables that are no UTF-8.
std::string Dump(const nlohmann::json& json, int indent = -1) {
  return json.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
}

/// What is found on this host. `ranks` may be empty.
StatusOr<nlohmann::json> LookAtHost(const std::vector<int>& ranks) {
  NetEnvironment environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    environment.emplace_back(text.substr(0, equals), text.substr(equals + 1));
  }
  AIT_ASSIGN_OR_RETURN(const NetFacts facts, ReadNetFacts());
  NetSettings settings = ReadNetSettings(environment);
  const std::vector<NetFinding> findings = LintNet(settings, facts);
  nlohmann::json host = DescribeHost(facts, settings, findings);
  if (!ranks.empty()) host["ranks"] = ranks;
  return host;
}

/// Prints and writes; returns the exit code.
StatusOr<int> Tell(const nlohmann::json& report, const std::string& path) {
  std::fputs(ReportText(report).c_str(), stdout);
  if (!path.empty()) {
    std::ofstream file(path);
    file << Dump(report, 1) << '\n';
    if (!file.flush()) return UnavailableError("cannot write ", path);
  }
  return report["errors"] == 0 ? kSuccess : kFailure;
}

StatusOr<int> LookAlone(const std::string& path) {
  AIT_ASSIGN_OR_RETURN(nlohmann::json host, LookAtHost({}));
  return Tell(MakeReport({std::move(host)}, {}), path);
}

/// One rank of a run. Rank 0 tells.
StatusOr<int> LookAsRank(const std::string& path) {
  AIT_ASSIGN_OR_RETURN(
      const std::unique_ptr<World> world,
      World::FromEnvironment({.transport = std::make_shared<NoTransportProvider>()}));
  if (world->store() == nullptr) return LookAlone(path);
  Store& store = *world->store();
  const auto key = [](const WorldHost& host) { return StrCat("ait/doctor/host/", host.ranks[0]); };
  std::string address;
  for (const WorldHost& host : world->hosts()) {
    std::vector<int> ranks;
    for (const Rank rank : host.ranks) ranks.push_back(rank.value());
    const bool is_ours =
        std::find(host.ranks.begin(), host.ranks.end(), world->rank()) != host.ranks.end();
    if (is_ours) address = host.address;
    if (host.ranks[0] != world->rank()) continue;
    AIT_ASSIGN_OR_RETURN(const nlohmann::json found, LookAtHost(ranks));
    AIT_RETURN_IF_ERROR(store.Set(key(host), Dump(found)));
  }
  if (address.empty()) address = "127.0.0.1";
  AIT_ASSIGN_OR_RETURN(
      const std::vector<PairResult> pairs,
      ProbePairs(store, {.rank = world->rank(), .size = world->size(), .address = address}));
  if (world->rank() != Rank(0)) return kSuccess;
  std::vector<nlohmann::json> hosts;
  for (const WorldHost& host : world->hosts()) {
    AIT_ASSIGN_OR_RETURN(const std::string text,
                         store.Get(key(host), Deadline::After(std::chrono::minutes(1))));
    hosts.push_back(nlohmann::json::parse(text));
  }
  return Tell(MakeReport(std::move(hosts), pairs), path);
}

StatusOr<int> LaunchRanks(int ranks, int argc, char** argv) {
  char self[4096];
  const ssize_t length = readlink("/proc/self/exe", self, sizeof(self));
  if (length <= 0) return NotFoundError("/proc/self/exe does not name this program");
  LaunchOptions options = {.world_size = WorldSize(ranks)};
  options.command.emplace_back(self, static_cast<std::size_t>(length));
  options.command.insert(options.command.end(), argv, argv + argc);
  AIT_ASSIGN_OR_RETURN(Launcher launcher, Launcher::Create(std::move(options)));
  AIT_ASSIGN_OR_RETURN(const LaunchResult result, launcher.Run());
  return result.exit_code;
}

int RunNet(const cxxopts::ParseResult& parsed, int argc, char** argv) {
  const std::string path = parsed.count("json") != 0 ? parsed["json"].as<std::string>() : "";
  StatusOr<int> ranks = 0;
  if (parsed.count("ranks") != 0) {
    ranks = ParseNumber("-n", parsed["ranks"].as<std::string>(), 1, kMaxLaunchRanks,
                        StrCat("a whole number from 1 to ", kMaxLaunchRanks));
    if (!ranks.ok()) return FailUsage("doctor", Message(ranks.status()));
  }
  const auto run = [&]() -> StatusOr<int> {
    const StatusOr<LaunchInfo> launch = LaunchInfo::FromEnv(Env::FromProcess());
    if (launch.ok() && launch->launched_by != LaunchedBy::kNobody) return LookAsRank(path);
    if (*ranks > 0) {
      AIT_RETURN_IF_ERROR(launch.status());
      return LaunchRanks(*ranks, argc, argv);
    }
    StatusOr<int> code = LookAlone(path);
    if (code.ok() && !launch.ok()) return launch.status();  // the variables contradict each other
    return code;
  };
  const StatusOr<int> code = run();
  return code.ok() ? *code : Fail("doctor", code.status());
}

}  // namespace

int RunDoctor(int argc, char** argv) {
  cxxopts::Options options("ait doctor net",
                           "Tells what is wrong with the network of a run before it starts.\n");
  options.custom_help("net [OPTION...]");
  cxxopts::OptionAdder add = options.add_options();
  add("n,ranks", "start so many ranks here, and measure between them",
      cxxopts::value<std::string>(), "N");
  add("json", "also write the report", cxxopts::value<std::string>(), "FILE");
  add("h,help", "print this help");
  return RunTopic(
      {.subcommand = "doctor", .name = "net", .ask = "say what to look at", .examples = kExamples},
      options, argc, argv,
      [&](const cxxopts::ParseResult& parsed) { return RunNet(parsed, argc, argv); });
}

}  // namespace ait::cli

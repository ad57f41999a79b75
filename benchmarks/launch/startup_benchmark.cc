// SPDX-License-Identifier: Apache-2.0
// From the start of a launcher to the end of the first all-reduce of two ranks over Gloo, one
// thread each: `ait run` with a C++ program, beside torchrun with Python, two Python ranks started
// directly, and the same C++ program started by ait::Launcher inside this process.
//
//   bench_startup [--json FILE] [--peers PYTHON] [rounds=7]
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "ait/launch/launcher.h"
#include "support/report.h"

namespace ait::benchmarks {
namespace {

// Finds the line "done NANOSECONDS" (of the steady clock, which all processes share) of rank 0.
class DoneLine final : public RankOutput {
 public:
  void Write(Rank, RankStream stream, std::string_view text) override {
    if (stream == RankStream::kOutput) output_ += text;
  }
  double SecondsSince(Time start) const {
    const std::size_t found = output_.find("done ");
    if (found == std::string::npos) return -1;
    const std::chrono::nanoseconds done(std::atoll(output_.c_str() + found + 5));
    return std::chrono::duration<double>(done - start.time_since_epoch()).count();
  }

 private:
  std::string output_;
};

// Milliseconds until the first all-reduce of this launch was done.
double Measure(LaunchOptions options) {
  DoneLine done;
  options.output = &done;
  options.binding = CpuBinding::kNone;
  options.threads = 1;
  options.timeout = std::chrono::minutes(2);
  auto launcher = Launcher::Create(options);
  const Time start = SystemClock().now();
  StatusOr<LaunchResult> result = launcher.ok() ? launcher->Run() : launcher.status();
  const Status status = result.ok() ? result->status : result.status();
  const double seconds = done.SecondsSince(start);
  if (!status.ok() || seconds < 0) {
    std::fprintf(stderr, "bench_startup: %s: %s\n", options.command.front().c_str(),
                 status.ok() ? "no all-reduce was done" : Message(status).c_str());
    if (result.ok()) std::fputs(result->ranks.front().last_errors.c_str(), stderr);
    std::exit(1);
  }
  return seconds * 1e3;
}

std::string FreePort() {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* any_address = reinterpret_cast<sockaddr*>(&address);
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(fd, any_address, length) == 0) getsockname(fd, any_address, &length);
  close(fd);
  return std::to_string(ntohs(address.sin_port));
}

int Main(int argc, char** argv) {
  Report report(argc, argv);
  const std::string& python = report.peers_python();
  const std::string script = AIT_PEERS "/startup.py";
  std::map<std::string, std::function<double()>> launches = {
      {"ait run",
       [] {
         return Measure({.command = {AIT_PROGRAM, "run", "-n", "2", "--threads", "1", "--",
                                     AIT_STARTUP_RANK}});
       }},
      {"ait::Launcher",
       [] { return Measure({.command = {AIT_STARTUP_RANK}, .world_size = WorldSize(2)}); }},
  };
  if (!python.empty()) {
    launches["torchrun"] = [&] {
      return Measure({.command = {python, "-m", "torch.distributed.run", "--nproc-per-node", "2",
                                  "--master-port", FreePort(), script}});
    };
    launches["Python ranks"] = [&] {
      return Measure(
          {.command = {python, script}, .world_size = WorldSize(2), .port = RankPort::kFree});
    };
  }

  const int rounds = std::atoi(report.Setting("rounds", "7").c_str());
  std::map<std::string, std::vector<double>> times;
  for (int round = 0; round <= rounds; ++round) {  // the first fills the page cache
    for (const auto& [name, launch] : launches) {
      const double ms = launch();
      if (round > 0) times[name].push_back(ms);
    }
  }
  const double ours = Median(times["ait run"]);
  const auto compare = [&](const char* row, const std::string& baseline) {
    report.AddTime(row, {.ms = ours, .baseline = baseline, .baseline_ms = Median(times[baseline])});
  };
  compare("first_all_reduce/library", "ait::Launcher");
  if (!python.empty()) {
    compare("first_all_reduce/torchrun", "torchrun");
    compare("first_all_reduce/direct", "Python ranks");
  }
  return report.Finish();
}

}  // namespace
}  // namespace ait::benchmarks

int main(int argc, char** argv) { return ait::benchmarks::Main(argc, argv); }

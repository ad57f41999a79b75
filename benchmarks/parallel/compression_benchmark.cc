// SPDX-License-Identifier: Apache-2.0
// bench_compression [MIB=25] [ROUNDS=9] [LINK=all|loopback|1gbit|RATE]: the methods of gradient
// compression beside the exact all-reduce, in turns, on one bucket of fp32 gradients between two
// processes over Gloo.
//
// The loopback interface is a link that is faster than the processor: what a method costs. The
// other link is one of two network namespaces, shaped by a token bucket to a rate that `tc` knows
// (1gbit): what it gains. It needs root and iproute2, and is left out without them. Times are those
// of the reduction alone, of the slower rank, medians over rounds; "cpu" is the time of cores that
// rank 0's process spends in it.
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "ait/comm/world.h"
#include "ait/launch/launcher.h"
#include "ait/parallel/compression.h"
#include "ait/tensor/gloo.h"
#include "support/report.h"

extern char** environ;

namespace ait::benchmarks {
namespace {

template <typename T>
T Must(StatusOr<T> result) {
  if (result.ok()) return *std::move(result);
  std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
  std::exit(1);
}
void Must(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  std::exit(1);
}

double CpuMilliseconds() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<double>(used.tv_sec) * 1e3 + static_cast<double>(used.tv_nsec) / 1e6;
}

// Four square matrices in one bucket.
FlatLayout Layout(std::int64_t mebibytes) {
  std::int64_t side = 64;
  while (4 * side * side * 4 < mebibytes << 20) side += 64;
  std::vector<ParameterInfo> parameters;
  for (int i = 0; i < 4; ++i) {
    parameters.push_back(
        {.name = StrCat("matrix", i), .sizes = {side, side}, .strides = {side, 1}});
  }
  return Must(FlatLayout::Create(
      std::move(parameters),
      {.world_size = WorldSize(2), .first_bucket = GiB(2), .bucket_cap = GiB(2)}));
}

struct Method {
  std::string name;
  std::shared_ptr<GradientCompression> compression;  // null: the all-reduce
  std::vector<double> ms, cpu_ms;
  CompressionCounters counters;
};

std::vector<Method> Methods(const FlatLayout& layout, Rank rank) {
  std::vector<Method> methods = {
      {.name = "none"},
      {.name = "bf16", .compression = Bf16Compression()},
      {.name = "int8", .compression = Int8Compression()},
      {.name = "topk", .compression = TopKCompression({.ratio = 0.01})},
      {.name = "powersgd", .compression = PowerSgdCompression({.rank = 4, .start_step = 0})},
  };
  for (Method& method : methods) {
    if (method.compression) Must(method.compression->Bind(layout, rank, WorldSize(2)));
  }
  return methods;
}

void Measure(Method& method, const FlatLayout& layout, const std::vector<float>& gradient,
             Communicator& communicator) {
  std::vector<float> values = gradient;
  Must(communicator.Barrier().Wait());
  const double cpu = CpuMilliseconds();
  const Time begin = SystemClock().now();
  if (method.compression) {
    method.counters = {};
    Must(method.compression->Reduce({.values = View(values), .layout = &layout}, communicator, {},
                                    method.counters));
    method.compression->EndStep(GradientCompression::StepEnd::kUpdated);
  } else {
    Must(communicator.AllReduce(View(values), ReduceOp::kSum).Wait());
  }
  std::array<double, 1> ms = {Seconds(SystemClock().now() - begin) * 1e3};
  method.cpu_ms.push_back(CpuMilliseconds() - cpu);
  Must(communicator.AllReduce(View(ms), ReduceOp::kMax).Wait());
  method.ms.push_back(ms[0]);
}

int RunRank(int argc, char** argv) {
  Report report(argc, argv);
  const std::string link = report.Setting("LINK", "loopback");
  const int rounds = std::stoi(report.Setting("ROUNDS", "9"));
  auto world = Must(World::FromEnvironment({.transport = Gloo()}));
  Communicator& all = *world->communicator();
  const FlatLayout layout = Layout(std::stoll(report.Setting("MIB", "25")));
  std::vector<float> gradient(static_cast<std::size_t>(layout.groups()[0].count));
  std::mt19937 random(static_cast<unsigned>(1 + all.rank().value()));
  std::normal_distribution<float> normal;
  for (float& value : gradient) value = normal(random);
  std::vector<Method> methods = Methods(layout, all.rank());
  for (int round = 0; round < rounds + 1; ++round) {
    for (Method& method : methods) {
      Measure(method, layout, gradient, all);
      if (round == 0) method.ms.clear(), method.cpu_ms.clear();
    }
  }
  if (all.rank() != Rank(0)) return 0;
  const Method& exact = methods[0];
  const auto bytes = static_cast<double>(4 * gradient.size());  // 2 (N-1)/N is 1 for two ranks
  const bool is_gigabit = link == "1gbit";
  for (Method& method : methods) {
    if (!method.compression) continue;
    const auto sent = static_cast<double>(method.counters.sent_bytes);
    report.AddTime(StrCat("compression/", method.name, "/time/", link),
                   {.ms = Median(method.ms),
                    .baseline = "fp32 all-reduce",
                    .baseline_ms = Median(exact.ms),
                    .limit_ms = is_gigabit ? std::optional(sent * 8 / 1e6) : std::nullopt});
    report.AddTime(StrCat("compression/", method.name, "/cpu/", link),
                   {.ms = Median(method.cpu_ms),
                    .baseline = "fp32 all-reduce",
                    .baseline_ms = Median(exact.cpu_ms)});
    report.AddRate(StrCat("compression/", method.name, "/ratio"), {.value = bytes / sent,
                                                                   .unit = "times fewer bytes",
                                                                   .baseline = "fp32 all-reduce",
                                                                   .baseline_value = 1});
    std::printf("  relative error of a step with residuals %.3g\n",
                method.counters.relative_error());
  }
  return report.Finish();
}

std::string Self() {
  std::array<char, 4096> self{};
  const ssize_t length = readlink("/proc/self/exe", self.data(), self.size());
  return std::string(self.data(), static_cast<std::size_t>(std::max<ssize_t>(0, length)));
}

// Starts a program by its name; -1 if that fails.
pid_t Start(std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t pid = -1;
  return posix_spawnp(&pid, arguments[0], nullptr, nullptr, arguments.data(), environ) == 0 ? pid
                                                                                            : -1;
}
int WaitFor(pid_t pid) {
  int status = 0;
  if (pid < 0 || waitpid(pid, &status, 0) != pid) return 1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

// Two network namespaces joined by a shaped link; gone with the object.
class TwoHosts {
 public:
  explicit TwoHosts(const std::string& rate) {
    works_ = Ip({"netns", "add", names_[0]}) && Ip({"netns", "add", names_[1]}) &&
             Ip({"-n", names_[0], "link", "add", "net0", "type", "veth", "peer", "name", "net0",
                 "netns", names_[1]});
    for (std::size_t host = 0; host < 2; ++host) {
      works_ = works_ &&
               Ip({"-n", names_[host], "addr", "add", Address(host) + "/24", "dev", "net0"}) &&
               Ip({"-n", names_[host], "link", "set", "net0", "up"}) &&
               Ip({"-n", names_[host], "link", "set", "lo", "up"}) &&
               Ip({"netns", "exec", names_[host], "tc", "qdisc", "add", "dev", "net0", "root",
                   "tbf", "rate", rate, "burst", "256kb", "latency", "50ms"});
    }
  }
  ~TwoHosts() {
    for (const std::string& name : names_) {
      if (access(StrCat("/run/netns/", name).c_str(), F_OK) == 0) Ip({"netns", "delete", name});
    }
  }
  TwoHosts(const TwoHosts&) = delete;
  TwoHosts& operator=(const TwoHosts&) = delete;

  bool works() const { return works_; }

  pid_t Run(std::size_t host, const std::vector<std::string>& command) const {
    std::vector<std::string> words = {"ip",
                                      "netns",
                                      "exec",
                                      names_[host],
                                      "env",
                                      "-u",
                                      "GLOO_SOCKET_IFNAME",
                                      "OMP_NUM_THREADS=1",
                                      StrCat("RANK=", host),
                                      "WORLD_SIZE=2",
                                      "LOCAL_RANK=0",
                                      "LOCAL_WORLD_SIZE=1",
                                      "MASTER_ADDR=" + Address(0),
                                      "MASTER_PORT=29517"};
    words.insert(words.end(), command.begin(), command.end());
    return Start(std::move(words));
  }

 private:
  static bool Ip(std::vector<std::string> words) {
    words.insert(words.begin(), "ip");
    return WaitFor(Start(std::move(words))) == 0;
  }
  static std::string Address(std::size_t host) { return StrCat("10.78.0.", host + 1); }

  std::array<std::string, 2> names_ = {StrCat("aitc", getpid(), "a"),
                                       StrCat("aitc", getpid(), "b")};
  bool works_ = false;
};

std::vector<std::string> RankCommand(int argc, char** argv, const std::string& link) {
  std::vector<std::string> command = {Self()};
  for (int i = 1; i < argc; ++i) {
    if (!std::string_view(argv[i]).starts_with("LINK=")) command.emplace_back(argv[i]);
  }
  command.push_back("LINK=" + link);
  command.emplace_back("ROLE=rank");
  return command;
}

int RunOverLoopback(int argc, char** argv) {
  LaunchOptions options{
      .command = RankCommand(argc, argv, "loopback"), .world_size = WorldSize(2), .threads = 1};
  Launcher launcher = Must(Launcher::Create(std::move(options)));
  return Must(launcher.Run()).exit_code;
}

int RunOverLink(int argc, char** argv, const std::string& rate, bool is_optional) {
  const TwoHosts hosts(rate);
  if (!hosts.works()) {
    std::printf("no link of %s: network namespaces need root and iproute2\n", rate.c_str());
    return is_optional ? 0 : 1;
  }
  const std::vector<std::string> command = RankCommand(argc, argv, rate);
  const pid_t first = hosts.Run(0, command);
  const pid_t second = hosts.Run(1, command);
  const int code = WaitFor(first);
  return code != 0 ? code : WaitFor(second);
}

int Main(int argc, char** argv) {
  const Report settings(argc, argv);
  if (settings.Setting("ROLE", "") == "rank") return RunRank(argc, argv);
  const std::string link = settings.Setting("LINK", "all");
  int code = 0;
  if (link == "all" || link == "loopback") code = RunOverLoopback(argc, argv);
  if (code == 0 && link != "loopback") {
    code = RunOverLink(argc, argv, link == "all" ? "1gbit" : link, link == "all");
  }
  return code;
}

}  // namespace
}  // namespace ait::benchmarks

int main(int argc, char** argv) { return ait::benchmarks::Main(argc, argv); }

// SPDX-License-Identifier: Apache-2.0
#include "cli/run.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cxxopts.hpp>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ait/launch/launcher.h"
#include "cli/console.h"
#include "cli/log_files.h"
#include "cli/own_streams.h"
#include "cli/program.h"
#include "cli/signal_relay.h"

namespace ait::cli {
namespace {

constexpr char kExamples[] = R"(
Each rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, AIT_RUN_ID,
AIT_LAYOUT and OMP_NUM_THREADS. No shell reads the command. When a rank fails, the others get TERM and after the
grace KILL; the exit code is that of the rank that failed first (128 + signal), 124 after a time-out,
125 if the launch itself fails, 126 or 127 if the program is not executable or not found. Ctrl-C is
passed to the ranks; a second one kills them.

Examples:
  ait run -n 2 -- ./train --steps 100       two ranks, the CPUs divided between them
  ait run -n 4 --threads 1 --bind none ./train
  ait run -n 8 --bind gpu -- ./train        each rank on the cores and memory next to its GPU
  ait run -n 2 --log-dir logs --timeout 3600 ./train
  ait run -n 2 --free-port -- python3 train.py   init_process_group("gloo") finds its ranks
  ait run -n 8 --nodes 2 --node-rank 0 --rendezvous head:29400 -- ./train   and on the other host
                                            the same with --node-rank 1: one run of 16 ranks
)";

cxxopts::Options MakeOptions() {
  cxxopts::Options options(
      "ait run", "Starts a program as N ranks of one run on this host, or on each of several.\n");
  options.custom_help("-n N [OPTION...] [--] PROGRAM [ARGUMENT...]");
  cxxopts::OptionAdder add = options.add_options();
  add("n,ranks", "number of ranks", cxxopts::value<std::string>(), "N");
  add("nodes", "hosts of the run; each has its own `ait run`, and ranks may differ in number",
      cxxopts::value<std::string>(), "N");
  add("node-rank", "which of them this is, from 0", cxxopts::value<std::string>(), "K");
  add("rendezvous", "where the launchers meet: an address of host 0 and a free port there",
      cxxopts::value<std::string>(), "HOST:PORT");
  add("join-timeout", "seconds until all launchers must have come (default: 300)",
      cxxopts::value<std::string>(), "SECONDS");
  add("threads", "OMP_NUM_THREADS of each rank (default: its share of the CPUs)",
      cxxopts::value<std::string>(), "T");
  add("bind",
      "compact (default), scatter, gpu: how ranks are laid out on CPUs and memory; none: any CPU",
      cxxopts::value<std::string>(), "LAYOUT");
  add("cores", "cores of each rank (default: equal shares of all)", cxxopts::value<std::string>(),
      "C");
  add("service-cores", "of those, cores for communication and loading (default: 0)",
      cxxopts::value<std::string>(), "C");
  add("no-bind", "as --bind none");
  add("timeout", "stop the run after so many seconds", cxxopts::value<std::string>(), "SECONDS");
  add("grace", "seconds between TERM and KILL (default: 10)", cxxopts::value<std::string>(),
      "SECONDS");
  add("free-port", "let go of MASTER_PORT: for programs that bind it themselves, such as Python's");
  add("no-prefix", "pass output on as it comes, without [rank] before each line");
  add("log-dir", "also keep the output of each rank in DIR/rank-N.log",
      cxxopts::value<std::string>(), "DIR");
  add("verbose", "rank 0 tells how it was launched (AIT_DESCRIBE=1)");
  add("q,quiet", "do not tell how CPUs and threads are divided");
  add("h,help", "print this help");
  return options;
}

// How many of the words after "run" are options of ait: those before the program. What comes after
// belongs to the program, also if it looks like an option.
int CountOwnWords(int argc, char** argv) {
  constexpr std::string_view kWithValue[] = {
      "-n",           "--ranks",        "--threads",      "--timeout", "--grace",
      "--bind",       "--cores",        "--log-dir",      "--nodes",   "--node-rank",
      "--rendezvous", "--join-timeout", "--service-cores"};
  int i = 1;
  while (i < argc) {
    const std::string_view word = argv[i];
    if (word == "--" || word.size() < 2 || word[0] != '-') break;
    const bool has_value =
        std::find(std::begin(kWithValue), std::end(kWithValue), word) != std::end(kWithValue);
    i += has_value ? 2 : 1;
  }
  return std::min(i, argc);
}

// What `text` says of each rank: "0 | 1".
template <typename Text>
std::string ByRank(const std::vector<RankPlan>& ranks, const Text& text) {
  constexpr std::size_t kShown = 16;
  std::string list;
  for (std::size_t i = 0; i < std::min(ranks.size(), kShown); ++i) {
    list += StrCat(i == 0 ? "" : " | ", text(ranks[i]));
  }
  return ranks.size() > kShown ? list + " | ..." : list;
}

std::string DescribeMemory(const LaunchPlan& plan) {
  const std::optional<int> first = plan.ranks.front().memory_node;
  bool same = true;
  for (const RankPlan& rank : plan.ranks) {
    if (!rank.memory_node) return StrCat("; memory by first touch: ", plan.first_touch);
    same = same && rank.memory_node == first;
  }
  if (same) return StrCat("; memory of node ", *first);
  return "; memory of nodes by rank: " +
         ByRank(plan.ranks, [](const RankPlan& rank) { return StrCat(*rank.memory_node); });
}

// "2 ranks, port 41234, 1 thread each; CPUs by rank: 0 | 1; memory of node 0".
std::string DescribePlan(const LaunchPlan& plan) {
  const std::size_t count = plan.ranks.size();
  const int threads = plan.ranks.front().threads;
  std::string text = Counted(static_cast<std::int64_t>(count), "rank");
  if (plan.world_size > static_cast<int>(count)) {
    text = StrCat(count == 1 ? "rank " : "ranks ", plan.first_rank);
    if (count > 1) text += StrCat(" to ", plan.first_rank + static_cast<int>(count) - 1);
    text += StrCat(" of ", plan.world_size, ", master ", plan.master);
  }
  text += StrCat(", port ", plan.port, ", ", Counted(threads, "thread"), " each");
  if (plan.ranks.front().cpus.empty()) return text + ", not bound to CPUs";
  if (count > 1 && plan.ranks[0].cpus == plan.ranks[1].cpus) {
    text += StrCat("; more ranks than CPUs: all share ", plan.ranks[0].cpus.ToString());
  } else {
    text += "; CPUs by rank: " +
            ByRank(plan.ranks, [](const RankPlan& rank) { return rank.cpus.ToString(); });
  }
  return text + DescribeMemory(plan);
}

void Report(const LaunchResult& result, const LaunchPlan& plan, OwnStreams& streams) {
  if (result.status.ok()) return;
  std::string text = StrCat("ait run: ", Message(result.status), "\n");
  const int local = result.first_failure ? result.first_failure->value() - plan.first_rank : -1;
  if (local >= 0 && local < static_cast<int>(result.ranks.size())) {  // else another host tells
    const RankExit& failed = result.ranks[static_cast<std::size_t>(local)];
    if (failed.signal == SIGKILL && !failed.stopped) {
      text +=
          "ait run: if nobody sent that signal, the kernel did, for want of memory: see dmesg\n";
    }
    if (!failed.last_errors.empty()) {
      text +=
          StrCat("ait run: last lines of rank ", *result.first_failure, " on standard error:\n");
      std::string_view lines = failed.last_errors;
      while (!lines.empty()) {
        const std::size_t end = lines.find('\n');
        text += StrCat("  | ", lines.substr(0, end), "\n");
        lines.remove_prefix(end + 1);
      }
    }
  }
  streams.Write(RankStream::kError, text);
}

int CodeOf(const Status& status) {
  switch (status.code()) {
    case StatusCode::kInvalidArgument:
      return kWrongUsage;
    case StatusCode::kNotFound:
      return kNotFound;
    case StatusCode::kPermissionDenied:
      return kNotExecutable;
    default:
      return kCannotLaunch;
  }
}

// "head:29400", "[fd00::1]:29400".
Status ReadRendezvous(const std::string& text, LaunchHosts& hosts) {
  const std::size_t colon = text.rfind(':');
  const auto wrong = [&] {
    return InvalidArgumentError("--rendezvous is ", text,
                                "; HOST:PORT is needed, such as head:29400 or [fd00::1]:29400");
  };
  if (colon == std::string::npos || colon == 0) return wrong();
  hosts.address = text.substr(0, colon);
  if (hosts.address.front() == '[' && hosts.address.back() == ']') {
    hosts.address = hosts.address.substr(1, hosts.address.size() - 2);
  } else if (hosts.address.find(':') != std::string::npos) {
    return wrong();
  }
  AIT_ASSIGN_OR_RETURN(const int port,
                       ParseNumber("the port of --rendezvous", text.substr(colon + 1), 1, 65535,
                                   "a whole number from 1 to 65535"));
  hosts.port = static_cast<std::uint16_t>(port);
  return OkStatus();
}

// --nodes and what belongs to it, into `hosts`.
Status ReadHosts(const cxxopts::ParseResult& parsed, LaunchHosts& hosts) {
  constexpr int kMaxHosts = 65'536;
  const auto has = [&](const char* name) { return parsed.count(name) != 0; };
  const auto text = [&](const char* name) { return parsed[name].as<std::string>(); };
  if (!has("nodes")) {
    for (const char* name : {"node-rank", "rendezvous", "join-timeout"}) {
      if (has(name)) return InvalidArgumentError("--", name, " needs --nodes");
    }
    return OkStatus();
  }
  AIT_ASSIGN_OR_RETURN(hosts.count, ParseNumber("--nodes", text("nodes"), 1, kMaxHosts,
                                                "a whole number, at least 1"));
  if (hosts.count > 1 && (!has("node-rank") || !has("rendezvous"))) {
    return InvalidArgumentError("--nodes ", hosts.count, " needs --node-rank and --rendezvous");
  }
  if (has("node-rank")) {
    AIT_ASSIGN_OR_RETURN(hosts.index,
                         ParseNumber("--node-rank", text("node-rank"), 0, hosts.count - 1,
                                     StrCat("a whole number from 0 to ", hosts.count - 1)));
  }
  if (has("rendezvous")) AIT_RETURN_IF_ERROR(ReadRendezvous(text("rendezvous"), hosts));
  if (has("join-timeout")) {
    AIT_ASSIGN_OR_RETURN(
        const double seconds,
        ParseNumber("--join-timeout", text("join-timeout"), std::numeric_limits<double>::min(),
                    86'400.0, "seconds, more than 0 and at most a day"));
    hosts.join_timeout = Saturate(std::chrono::duration<double>(seconds));
  }
  return OkStatus();
}

// --bind, --no-bind, --cores and --service-cores, into `options`. **Errors.** InvalidArgument.
Status ReadLayout(const cxxopts::ParseResult& parsed, LaunchOptions& options) {
  const auto text = [&](const char* name) { return parsed[name].as<std::string>(); };
  const std::string bind = parsed.count("bind") != 0 ? text("bind") : "";
  const bool none = parsed.count("no-bind") != 0 || bind == "none";
  if (parsed.count("no-bind") != 0 && !bind.empty() && bind != "none") {
    return InvalidArgumentError("--no-bind and --bind ", bind, " contradict each other");
  }
  if (none) options.binding = CpuBinding::kNone;
  if (!none && parsed.count("bind") != 0) {
    const auto policy = ParseLayoutPolicy(bind);
    if (!policy.ok()) {
      return InvalidArgumentError("option --bind cannot be '", bind,
                                  "': give compact, scatter, gpu or none");
    }
    options.layout.policy = *policy;
  }
  for (const auto& [name, member] : {std::pair("cores", &LaunchLayout::cores),
                                     std::pair("service-cores", &LaunchLayout::service_cores)}) {
    if (parsed.count(name) == 0) continue;
    if (none) return InvalidArgumentError("--", name, " needs ranks that are bound");
    AIT_ASSIGN_OR_RETURN(options.layout.*member,
                         ParseNumber(StrCat("--", name), text(name), 0, CpuSet::kMaxId + 1,
                                     "a number of cores, 0 for the default"));
  }
  return OkStatus();
}

// What the options say of numbers, into `options`. **Errors.** InvalidArgument.
Status ReadNumbers(const cxxopts::ParseResult& parsed, LaunchOptions& options) {
  constexpr double kLeast = std::numeric_limits<double>::min();
  constexpr double kMost = std::numeric_limits<double>::infinity();
  const auto text = [&](const char* name) { return parsed[name].as<std::string>(); };
  AIT_ASSIGN_OR_RETURN(const int ranks,
                       ParseNumber("-n", text("ranks"), 1, kMaxLaunchRanks,
                                   StrCat("a whole number from 1 to ", kMaxLaunchRanks)));
  options.world_size = WorldSize(ranks);
  AIT_RETURN_IF_ERROR(ReadHosts(parsed, options.hosts));
  AIT_RETURN_IF_ERROR(ReadLayout(parsed, options));
  if (parsed.count("threads") != 0) {
    AIT_ASSIGN_OR_RETURN(options.threads, ParseNumber("--threads", text("threads"), 1,
                                                      std::numeric_limits<int>::max(),
                                                      "a whole number, at least 1"));
  }
  if (parsed.count("timeout") != 0) {
    AIT_ASSIGN_OR_RETURN(const double seconds, ParseNumber("--timeout", text("timeout"), kLeast,
                                                           kMost, "seconds, more than 0"));
    options.timeout = Saturate(std::chrono::duration<double>(seconds));
  }
  if (parsed.count("grace") != 0) {
    AIT_ASSIGN_OR_RETURN(const double seconds,
                         ParseNumber("--grace", text("grace"), 0.0, kMost, "seconds, at least 0"));
    options.grace = Saturate(std::chrono::duration<double>(seconds));
  }
  return OkStatus();
}

int Launch(const cxxopts::ParseResult& parsed, std::vector<std::string> command) {
  if (parsed.count("ranks") == 0) return FailUsage("run", "say how many ranks: -n N");
  if (command.empty()) return FailUsage("run", "no program to run");
  const bool keeps_logs = parsed.count("log-dir") != 0;
  if (keeps_logs && parsed["log-dir"].as<std::string>().empty()) {
    return FailUsage("run", "no folder after --log-dir");
  }
  LaunchOptions options = {.command = std::move(command)};
  if (const Status status = ReadNumbers(parsed, options); !status.ok()) {
    return FailUsage("run", Message(status));
  }
  if (parsed.count("verbose") != 0) options.environment["AIT_DESCRIBE"] = "1";
  if (parsed.count("free-port") != 0) options.port = RankPort::kFree;
  // A background process group that reads from the terminal is stopped by the kernel.
  if (isatty(STDIN_FILENO) == 0) options.input = RankInput::kRankZero;

  signal(SIGPIPE, SIG_IGN);  // a closed standard output ends the run in order
  Launcher* running = nullptr;
  OwnStreams streams([&running] {
    if (running != nullptr) running->Stop(SIGPIPE);
  });
  const bool output_is_terminal = isatty(STDOUT_FILENO) != 0;
  const bool error_is_terminal = isatty(STDERR_FILENO) != 0;
  const int world_size = options.world_size.value();
  Console console(world_size, {.prefix = (world_size > 1 || options.hosts.count > 1) &&
                                         parsed.count("no-prefix") == 0,
                               .output_is_terminal = output_is_terminal,
                               .error_is_terminal = error_is_terminal,
                               .write = [&streams](RankStream stream, std::string_view text) {
                                 streams.Write(stream, text);
                               }});
  LogFiles logs(&console);
  options.output = keeps_logs ? static_cast<RankOutput*>(&logs) : &console;
  if (error_is_terminal) {
    options.terminal = output_is_terminal ? RankTerminal::kOutputAndError : RankTerminal::kError;
  }

  auto launcher = Launcher::Create(std::move(options));
  if (!launcher.ok()) return Fail("run", launcher.status(), CodeOf(launcher.status()));
  if (keeps_logs) {  // after all that can be refused is
    const Status opened =
        logs.Open(parsed["log-dir"].as<std::string>(), launcher->plan().first_rank, world_size);
    if (!opened.ok()) return Fail("run", opened, kCannotLaunch);
  }
  console.set_first_rank(launcher->plan().first_rank);
  running = &*launcher;
  const SignalRelay relay(*launcher);
  // What ranks leave behind becomes a child of ours and not of init, so that it can be waited for.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  if (parsed.count("quiet") == 0) {
    streams.Write(RankStream::kError, StrCat("ait run: ", DescribePlan(launcher->plan()), "\n"));
    const bool asked = parsed.count("bind") + parsed.count("cores") + parsed.count("service-cores");
    if (asked && launcher->plan().ranks.front().layout) {
      for (const std::string& note : launcher->plan().notes) {
        streams.Write(RankStream::kError, StrCat("ait run: ", note, "\n"));
      }
    }
  }
  const auto result = launcher->Run();
  if (!result.ok()) return Fail("run", result.status(), CodeOf(result.status()));
  if (!logs.status().ok()) Fail("run", logs.status());
  Report(*result, launcher->plan(), streams);
  return result->exit_code;
}

}  // namespace

int RunRun(int argc, char** argv) {
  cxxopts::Options options = MakeOptions();
  const int own = CountOwnWords(argc, argv);
  std::vector<std::string> command(argv + own, argv + argc);
  if (!command.empty() && command.front() == "--") command.erase(command.begin());
  try {
    const cxxopts::ParseResult parsed = options.parse(own, argv);
    if (parsed.count("help") != 0) {
      std::printf("%s%s", options.help().c_str(), kExamples);
      return kSuccess;
    }
    return Launch(parsed, std::move(command));
  } catch (const cxxopts::exceptions::exception& error) {
    return FailUsage("run", error);
  }
}

}  // namespace ait::cli

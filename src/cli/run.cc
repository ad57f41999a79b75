// SPDX-License-Identifier: Apache-2.0
#include "cli/run.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cxxopts.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ait/launch/launcher.h"
#include "cli/console.h"
#include "cli/log_files.h"
#include "cli/program.h"

namespace ait::cli {
namespace {

constexpr char kExamples[] = R"(
Each rank gets RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT, AIT_RUN_ID and
OMP_NUM_THREADS. No shell reads the command. When a rank fails, the others get TERM and after the
grace KILL; the exit code is that of the rank that failed first (128 + signal), 124 after a time-out,
125 if the launch itself fails, 126 or 127 if the program is not executable or not found. Ctrl-C is
passed to the ranks; a second one kills them.

Examples:
  ait run -n 2 -- ./train --steps 100       two ranks, the CPUs divided between them
  ait run -n 4 --threads 1 --no-bind ./train
  ait run -n 2 --log-dir logs --timeout 3600 ./train
  ait run -n 2 --free-port -- python3 train.py   init_process_group("gloo") finds its ranks
)";

cxxopts::Options MakeOptions() {
  cxxopts::Options options("ait run", "Starts a program as N ranks of one run on this host.\n");
  options.custom_help("-n N [OPTION...] [--] PROGRAM [ARGUMENT...]");
  cxxopts::OptionAdder add = options.add_options();
  add("n,ranks", "number of ranks", cxxopts::value<int>(), "N");
  add("threads", "OMP_NUM_THREADS of each rank (default: its share of the CPUs)",
      cxxopts::value<int>(), "T");
  add("no-bind", "let ranks run on any CPU");
  add("timeout", "stop the run after so many seconds", cxxopts::value<double>(), "SECONDS");
  add("grace", "seconds between TERM and KILL (default: 10)", cxxopts::value<double>(), "SECONDS");
  add("free-port", "let go of MASTER_PORT: for programs that bind it themselves, such as Python's");
  add("no-prefix", "pass output on as it comes, without [rank] before each line");
  add("log-dir", "also keep the output of each rank in DIR/rank-N.log",
      cxxopts::value<std::string>(), "DIR");
  add("q,quiet", "do not tell how CPUs and threads are divided");
  add("h,help", "print this help");
  return options;
}

// How many of the words after "run" are options of ait: those before the program. What comes after
// belongs to the program, also if it looks like an option.
int CountOwnWords(int argc, char** argv) {
  constexpr std::string_view kWithValue[] = {"-n",        "--ranks", "--threads",
                                             "--timeout", "--grace", "--log-dir"};
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

Duration FromSeconds(double seconds) {
  constexpr double kForEver = 1e9;
  if (!(seconds < kForEver)) return Duration::max();
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

// What the signal handler stops.
Launcher* current_launcher = nullptr;
void PassOn(int signal) { current_launcher->Stop(signal); }

void PassOnSignals(Launcher& launcher) {
  current_launcher = &launcher;
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    struct sigaction action = {};
    sigaction(number, nullptr, &action);
    if (action.sa_handler == SIG_IGN) continue;  // nohup
    action = {};
    action.sa_handler = PassOn;
    action.sa_flags = SA_RESTART;
    sigaction(number, &action, nullptr);
  }
  signal(SIGPIPE, SIG_IGN);  // a closed standard output ends the run in order
  // What ranks leave behind becomes a child of ours and not of init, so that it can be waited for.
  prctl(PR_SET_CHILD_SUBREAPER, 1);
}

void WriteToOwnStream(RankStream stream, std::string_view text) {
  const int fd = stream == RankStream::kOutput ? STDOUT_FILENO : STDERR_FILENO;
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      if (errno == EPIPE && current_launcher != nullptr) current_launcher->Stop(SIGPIPE);
      return;
    }
    text.remove_prefix(static_cast<std::size_t>(n));
  }
}

// "2 ranks, port 41234, 1 thread each; CPUs by rank: 0 | 1".
std::string DescribePlan(const LaunchPlan& plan) {
  const std::size_t count = plan.ranks.size();
  const int threads = plan.ranks.front().threads;
  std::string text = StrCat(count, count == 1 ? " rank" : " ranks", ", port ", plan.port, ", ",
                            threads, threads == 1 ? " thread each" : " threads each");
  if (plan.ranks.front().cpus.empty()) return text + ", not bound to CPUs";
  if (count > 1 && plan.ranks[0].cpus == plan.ranks[1].cpus) {
    return StrCat(text, "; more ranks than CPUs: all share ", plan.ranks[0].cpus.ToString());
  }
  text += "; CPUs by rank: ";
  constexpr std::size_t kShown = 16;
  for (std::size_t i = 0; i < std::min(count, kShown); ++i) {
    text += StrCat(i == 0 ? "" : " | ", plan.ranks[i].cpus.ToString());
  }
  return count > kShown ? text + " | ..." : text;
}

void Report(const LaunchResult& result) {
  if (result.status.ok()) return;
  std::string text = StrCat("ait run: ", Message(result.status), "\n");
  if (result.first_failure) {
    const RankExit& failed = result.ranks[static_cast<std::size_t>(result.first_failure->value())];
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
  WriteToOwnStream(RankStream::kError, text);
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

int Launch(const cxxopts::ParseResult& parsed, std::vector<std::string> command) {
  if (parsed.count("ranks") == 0) return FailUsage("run", "say how many ranks: -n N");
  if (command.empty()) return FailUsage("run", "no program to run");
  const int world_size = parsed["ranks"].as<int>();
  LaunchOptions options = {.command = std::move(command), .world_size = WorldSize(world_size)};
  if (parsed.count("threads") != 0) {
    options.threads = parsed["threads"].as<int>();
    if (options.threads < 1) return FailUsage("run", "--threads must be at least 1");
  }
  if (parsed.count("no-bind") != 0) options.binding = CpuBinding::kNone;
  if (parsed.count("free-port") != 0) options.port = RankPort::kFree;
  if (parsed.count("timeout") != 0) options.timeout = FromSeconds(parsed["timeout"].as<double>());
  if (parsed.count("grace") != 0) options.grace = FromSeconds(parsed["grace"].as<double>());
  // A background process group that reads from the terminal is stopped by the kernel.
  if (isatty(STDIN_FILENO) == 0) options.input = RankInput::kRankZero;

  const bool output_is_terminal = isatty(STDOUT_FILENO) != 0;
  const bool error_is_terminal = isatty(STDERR_FILENO) != 0;
  Console console(std::max(world_size, 1),
                  {.prefix = world_size > 1 && parsed.count("no-prefix") == 0,
                   .output_is_terminal = output_is_terminal,
                   .error_is_terminal = error_is_terminal,
                   .write = WriteToOwnStream});
  options.output = &console;
  if (error_is_terminal) {
    options.terminal = output_is_terminal ? RankTerminal::kOutputAndError : RankTerminal::kError;
  }
  std::optional<LogFiles> logs;
  if (parsed.count("log-dir") != 0) {
    auto created = LogFiles::Create(parsed["log-dir"].as<std::string>(), world_size, &console);
    if (!created.ok()) return Fail("run", created.status(), kCannotLaunch);
    options.output = &logs.emplace(*std::move(created));
  }

  auto launcher = Launcher::Create(std::move(options));
  if (!launcher.ok()) return Fail("run", launcher.status(), CodeOf(launcher.status()));
  if (parsed.count("quiet") == 0) {
    WriteToOwnStream(RankStream::kError, StrCat("ait run: ", DescribePlan(launcher->plan()), "\n"));
  }
  PassOnSignals(*launcher);
  const auto result = launcher->Run();
  if (!result.ok()) return Fail("run", result.status(), CodeOf(result.status()));
  if (logs && !logs->status().ok()) Fail("run", logs->status());
  Report(*result);
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
    return FailUsage("run", error.what());
  }
}

}  // namespace ait::cli

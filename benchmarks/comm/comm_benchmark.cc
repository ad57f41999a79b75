// SPDX-License-Identifier: Apache-2.0
// Collectives between processes of one host over shared memory, beside what they are measured against:
//
//   bench_comm [--json FILE] [--peers PYTHON] [LAUNCHES=5] [BUDGET=30] [REPETITIONS=7]
//              [ONLY=COMPETITOR] [WRAP=COMMAND]
//
//   floor      a hand-written all-reduce of two forked processes (benchmarks/peers/shm_floor.cc): the limit.
//              Its results go to a third tensor; in-place-floor writes them where ours go
//   gloo       c10d's Gloo, what users of libtorch have; own-gloo is ait's transport over Gloo
//   openmpi    where Debian's mpicxx.openmpi and mpirun.openmpi are found
//   deepspeed  its shared-memory all-reduce, with --peers; two ranks (it spins, and takes 6 ms
//              a call where ranks share a core)
//
// Cases are <operation>/<size>/<ranks>/<arena|foreign>/<baseline>, fp32, two ranks on two cores, four ranks
// sharing them. Our arena buffers are in place, as nccl-tests has it; foreign ones are memory of the heap,
// in place too. A peer knows no arena: its row stands beside both. Everybody's results are checked first,
// with data that differs by rank and place.
//
// A launch can land in a slow state for as long as it lives, so every competitor is launched several times,
// in turn with the others. The best launch of each case counts (the median of its rows of calls); `launches`
// and `slow_launches` (over 1.5 times the best) say how it was reached. WRAP is put before every launch: a
// command that pauses other work, or `nice`.

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "support/report.h"

namespace ait::benchmarks {
namespace {

struct Case {
  std::string operation;
  std::int64_t bytes;
  int ranks;
  std::string memory;
  auto operator<=>(const Case&) const = default;
};

/// Median times in us, one for each launch.
using Results = std::map<std::pair<std::string, Case>, std::vector<double>>;

struct Competitor {
  std::string name;
  int ranks;
  std::vector<std::string> command;  // without the words of the timer
  std::string sizes;                 // KiB
};

std::string Quoted(const std::string& word) {
  std::string text = "'";
  for (const char c : word) text += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return text + "'";
}

/// Runs one launch; gives what it measured. Empty if it failed, which it has said itself.
std::map<Case, double> Launch(const Competitor& competitor, const Report& report) {
  std::string line = report.Setting("WRAP", "");
  for (const std::string& word : competitor.command) line.append(" ").append(Quoted(word));
  line += " " + report.Setting("BUDGET", "30") + " " + report.Setting("REPETITIONS", "7") + " " +
          competitor.sizes;
  FILE* pipe = popen(line.c_str(), "r");
  if (pipe == nullptr) return {};
  std::map<Case, double> times;
  std::array<char, 4096> text;
  while (std::fgets(text.data(), text.size(), pipe) != nullptr) {
    std::istringstream words(text.data());
    std::string mark;
    Case found{.operation = "", .bytes = 0, .ranks = competitor.ranks, .memory = ""};
    double least = 0, median = 0;
    if (!(words >> mark) || mark != "AIT_BENCH") continue;
    if (!(words >> found.operation >> found.bytes >> found.memory >> least >> median)) continue;
    const auto [at, is_new] = times.emplace(found, median);  // of several ways, the best
    if (!is_new) at->second = std::min(at->second, median);
  }
  if (pclose(pipe) == 0) return times;
  std::fprintf(stderr, "a launch of %s with %d ranks failed: %s\n", competitor.name.c_str(),
               competitor.ranks, line.c_str());
  return {};
}

std::vector<Competitor> Competitors(const Report& report) {
  std::vector<Competitor> all;
  for (const int ranks : {2, 4}) {
    const std::string sizes = ranks == 2 ? "4 64 1024 25600 65536" : "4 1024";
    const auto run = [&](std::vector<std::string> program) {
      std::vector<std::string> command = {AIT_PROGRAM,           "run",       "-q", "-n",
                                          std::to_string(ranks), "--threads", "1",  "--no-prefix"};
      command.insert(command.end(), program.begin(), program.end());
      return command;
    };
    const auto add = [&](const char* name, std::vector<std::string> command) {
      all.push_back({name, ranks, std::move(command), sizes});
    };
    add("ait", run({"--", AIT_COMM_SHM_RANK}));
    if (ranks == 2) add("floor", {AIT_SHM_FLOOR});
    if (std::string(AIT_COMM_GLOO_RANK) != "") {
      add("gloo", run({"--", AIT_COMM_GLOO_RANK, "c10d"}));
      add("own-gloo", run({"--", AIT_COMM_GLOO_RANK, "ait"}));
    }
    if (std::string(AIT_MPI_COLLECTIVES) != "") {
      std::vector<std::string> command = {AIT_MPIRUN, "--allow-run-as-root", "-np",
                                          std::to_string(ranks)};
      const std::vector<std::string> how =
          ranks == 2 ? std::vector<std::string>{"--bind-to", "core"}
                     : std::vector<std::string>{"--oversubscribe", "--bind-to",           "none",
                                                "--mca",           "mpi_yield_when_idle", "1"};
      command.insert(command.end(), how.begin(), how.end());
      command.push_back(AIT_MPI_COLLECTIVES);
      add("openmpi", std::move(command));
    }
    if (ranks == 2 && !report.peers_python().empty()) {
      add("deepspeed", run({"--free-port", "--", report.peers_python(), AIT_PEER_COLLECTIVES}));
    }
  }
  return all;
}

std::string SizeName(std::int64_t bytes) {
  return bytes >= 1 << 20 ? std::to_string(bytes >> 20) + "MiB"
                          : std::to_string(bytes >> 10) + "KiB";
}

/// The rows of the report.
class Rows {
 public:
  Rows(Report& report, const Results& results) : report_(report), results_(results) {}

  void AddAll() {
    for (const auto& [key, times] : results_) {
      const auto& [who, which] = key;
      if (who != "ait" || which.operation.starts_with("signature")) continue;
      if (which.operation.starts_with("all_reduce_")) {
        AddHalf(which);
        continue;
      }
      AddCase(which);
    }
    AddSignature();
  }

 private:
  std::optional<double> Best(const std::string& who, const Case& which) const {
    const auto found = results_.find({who, which});
    if (found == results_.end()) return std::nullopt;
    return *std::min_element(found->second.begin(), found->second.end());
  }

  /// How many launches there were, and how many slow ones.
  std::pair<std::size_t, std::size_t> Launches(const std::string& who, const Case& which) const {
    const std::vector<double>& times = results_.at({who, which});
    const double best = *std::min_element(times.begin(), times.end());
    return {times.size(),
            static_cast<std::size_t>(std::count_if(times.begin(), times.end(),
                                                   [&](double t) { return t > 1.5 * best; }))};
  }

  static std::string Prefix(const Case& which) {
    return which.operation + "/" + SizeName(which.bytes) + "/" + std::to_string(which.ranks) + "/" +
           which.memory + "/";
  }

  void AddTime(const Case& which, const std::string& baseline, const Case& theirs,
               std::string name = "") {
    if (name.empty()) name = baseline == "ait" ? theirs.operation : baseline;
    const auto time = Best(baseline, theirs);
    if (!time) return;
    const double ours = *Best("ait", which);
    const auto floor = Best("floor", which);
    report_.AddTime(Prefix(which) + name,
                    {.ms = ours / 1e3,
                     .baseline = baseline == "ait" ? "own " + name : name,
                     .baseline_ms = *time / 1e3,
                     .limit_ms = floor ? std::optional(*floor / 1e3) : std::nullopt});
    const auto [launches, slow] = Launches("ait", which);
    report_.Note("launches", launches);
    report_.Note("slow_launches", slow);
    report_.Note("baseline_slow_launches", Launches(baseline, theirs).second);
  }

  void AddCase(const Case& which) {
    AddTime(which, "floor", which);
    Case in_place = which;
    in_place.operation += "_in_place";
    AddTime(which, "floor", in_place, "in-place-floor");
    Case theirs = which;
    theirs.memory = "foreign";
    for (const char* peer : {"gloo", "own-gloo", "openmpi", "deepspeed"}) {
      AddTime(which, peer, theirs);
    }
    if (which.operation == "all_reduce") {
      if (which.bytes != 4 << 10 || which.memory != "arena") return;
      const double us = *Best("ait", which);
      report_.AddValue(Prefix(which) + "us", us, "us", "1 us", 1, 1 / us);
      return;
    }
    Case all_reduce = which;
    all_reduce.operation = "all_reduce";
    AddTime(which, "ait", all_reduce);
  }

  /// bf16 and fp16: bytes per second beside those of fp32.
  void AddHalf(const Case& which) {
    Case fp32 = which;
    fp32.operation = "all_reduce";
    const auto rate = [&](const Case& at) {
      return static_cast<double>(at.bytes) / *Best("ait", at) / 1e3;
    };
    report_.AddRate(
        Prefix(which) + "fp32",
        {.value = rate(which), .unit = "GB/s", .baseline = "fp32", .baseline_value = rate(fp32)});
  }

  void AddSignature() {
    const auto of = [&](const char* name) {
      const auto found = results_.find({"ait", {name, 64, 2, "arena"}});
      return found == results_.end() ? std::vector<double>{} : found->second;
    };
    const std::vector<double> on = of("signature_on"), off = of("signature_off");
    if (on.empty() || on.size() != off.size()) return;
    // Of the launch that was least disturbed: the difference is small against what others take.
    const std::size_t best =
        static_cast<std::size_t>(std::min_element(off.begin(), off.end()) - off.begin());
    const double without = off[best] * 1e3, ns = on[best] * 1e3 - without;
    report_.AddValue("signature/ns", ns, "ns", "the call without (ns)", without,
                     without / (without + ns));
  }

  Report& report_;
  const Results& results_;
};

int Main(int argc, char** argv) {
  Report report(argc, argv);
  const int launches = std::max(1, std::atoi(report.Setting("LAUNCHES", "5").c_str()));
  const std::string only = report.Setting("ONLY", "");
  Results results;
  const std::vector<Competitor> competitors = Competitors(report);
  bool failed = false;
  for (int launch = 0; launch < launches; ++launch) {
    for (const Competitor& competitor : competitors) {
      if (!only.empty() && only != competitor.name && competitor.name != "ait") continue;
      const std::map<Case, double> times = Launch(competitor, report);
      failed |= times.empty();
      for (const auto& [which, us] : times) results[{competitor.name, which}].push_back(us);
    }
  }
  Rows(report, results).AddAll();
  const int code = report.Finish();
  return failed ? 1 : code;
}

}  // namespace
}  // namespace ait::benchmarks

int main(int argc, char** argv) { return ait::benchmarks::Main(argc, argv); }

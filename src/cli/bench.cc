// SPDX-License-Identifier: Apache-2.0
#include "cli/bench.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cxxopts.hpp>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "ait/comm/shared_memory.h"
#include "ait/comm/tcp_store.h"
#include "ait/comm/thread_group.h"
#include "ait/comm/world.h"
#include "ait/launch/launcher.h"
#include "ait/memory/heap.h"
#include "cli/comm_bench.h"
#include "cli/comm_bench_table.h"
#include "cli/io_bench.h"
#include "cli/memory_bench.h"
#include "cli/program.h"
#include "cli/topic.h"
#include "comm/shm_ranks.h"

namespace ait::cli {
namespace {

constexpr char kExamples[] = R"(
The columns and their meaning are those of nccl-tests: sizes are of the whole buffer, algbw = size / time,
busbw = algbw times 2(n-1)/n for all_reduce, (n-1)/n for operations with parts, else 1. "N/A": the
operation has no such call, or was not checked. The percentiles are of single calls of the slowest rank,
in place where there is such a call. Every result is checked against data that depends on rank and place.

Without a launcher it starts its ranks itself; under one (`ait run`, torchrun, …) each process is one.
Exit code: 0; 1 if something failed or an element was wrong; 2 for wrong usage.

Examples:
  ait bench comm                                      every collective, two ranks, shared memory
  ait bench comm -n 4 --op all_reduce --dtype float32,bfloat16 -b 1K -e 64M -f 2
  ait bench comm --op all_reduce --signatures off --json off.json
  ait bench comm --transport threads --memory heap
)";

cxxopts::Options MakeOptions() {
  cxxopts::Options options("ait bench comm",
                           "Measures collectives: time, bandwidth and right results.\n");
  options.custom_help("[OPTION...]");
  const auto text = [](const char* fallback) {
    return cxxopts::value<std::string>()->default_value(fallback);
  };
  cxxopts::OptionAdder add = options.add_options();
  add("transport", "shm (processes of this host) or threads (of one process)", text("shm"), "NAME");
  add("n,ranks", "number of ranks, where it starts them itself", text("2"), "N");
  add(
      "op",
      "all, or of: " +
          [] {
            std::string names;
            for (const OperationKind kind : CommBenchKinds()) {
              names += (names.empty() ? "" : ",") + std::string(CommBenchName(kind));
            }
            return names;
          }(),
      text("all"), "LIST");
  add("dtype", "all, or of: float32,bfloat16,float16,float64,int8,…", text("float32"), "LIST");
  add("redop", "all, or of: sum,avg,max,min,prod", text("sum"), "LIST");
  add("b,min-size", "first size in bytes (K, M, G: 1024)", text("4K"), "SIZE");
  add("e,max-size", "last size", text("64M"), "SIZE");
  add("f,factor", "from one size to the next", text("4"), "X");
  add("iters", "calls that are timed", text("20"), "N");
  add("w,warmup", "calls before", text("5"), "N");
  add("root", "rank of broadcast, gather and scatter", text("0"), "RANK");
  add("c,check", "whether results are checked (1 or 0)", text("1"), "0|1");
  add("memory", "arena (the transport's own; reduced in place) or heap", text("arena"), "NAME");
  add("signatures", "whether ranks compare what they mean (shm only)", text("on"), "on|off");
  add("json", "also write the result", cxxopts::value<std::string>(), "FILE");
  add("h,help", "print this help");
  return options;
}

struct Request {
  CommBenchRun run;
  bool threads = false;
  bool arena = true;
  std::string json;
};

/// The words of a list, each turned by `parse` into a T; "all" gives `all`.
template <typename T, typename Parse>
StatusOr<std::vector<T>> ParseList(std::string_view option, const std::string& text,
                                   const std::vector<T>& all, const Parse& parse) {
  if (text == "all") return all;
  std::vector<T> values;
  std::string_view rest = text;
  while (true) {
    const std::size_t comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    const std::optional<T> value = parse(word);
    if (!value) {
      return InvalidArgumentError("option ", option, " does not know '", word,
                                  "'; see ait bench comm --help");
    }
    values.push_back(*value);
    if (comma == std::string_view::npos) return values;
    rest.remove_prefix(comma + 1);
  }
}

StatusOr<Request> ReadRequest(const cxxopts::ParseResult& parsed) {
  const auto text = [&](const char* name) { return parsed[name].as<std::string>(); };
  const auto one_of = [&](const char* name, std::string_view first,
                          std::string_view second) -> StatusOr<bool> {
    if (text(name) == first) return true;
    if (text(name) == second) return false;
    return InvalidArgumentError("option --", name, " cannot be '", text(name), "': give ", first,
                                " or ", second);
  };
  Request request;
  CommBenchOptions& options = request.run.options;
  AIT_ASSIGN_OR_RETURN(request.threads, one_of("transport", "threads", "shm"));
  AIT_ASSIGN_OR_RETURN(request.arena, one_of("memory", "arena", "heap"));
  AIT_ASSIGN_OR_RETURN(request.run.signatures, one_of("signatures", "on", "off"));
  AIT_ASSIGN_OR_RETURN(options.check, one_of("check", "1", "0"));
  if (request.threads && !request.run.signatures) {
    return InvalidArgumentError("--signatures off is for --transport shm: threads always compare");
  }
  AIT_ASSIGN_OR_RETURN(request.run.ranks,
                       ParseNumber("-n", text("ranks"), 1, kMaxLaunchRanks,
                                   StrCat("a whole number from 1 to ", kMaxLaunchRanks)));
  AIT_ASSIGN_OR_RETURN(options.kinds,
                       ParseList("--op", text("op"), CommBenchKinds(), [](std::string_view word) {
                         std::optional<OperationKind> found;
                         for (const OperationKind kind : CommBenchKinds()) {
                           if (CommBenchName(kind) == word) found = kind;
                         }
                         return found;
                       }));
  std::vector<DType> dtypes;
  for (int i = 0; i < kDTypeCount; ++i) dtypes.push_back(static_cast<DType>(i));
  AIT_ASSIGN_OR_RETURN(options.dtypes, ParseList("--dtype", text("dtype"), dtypes, DTypeFromName));
  using enum ReduceOp;
  const std::pair<std::string_view, ReduceOp> redops[] = {
      {"sum", kSum}, {"avg", kAverage}, {"max", kMax}, {"min", kMin}, {"prod", kProduct}};
  AIT_ASSIGN_OR_RETURN(options.reduce_ops,
                       ParseList("--redop", text("redop"),
                                 std::vector<ReduceOp>{kSum, kAverage, kMax, kMin, kProduct},
                                 [&](std::string_view word) {
                                   std::optional<ReduceOp> found;
                                   for (const auto& [name, redop] : redops) {
                                     if (name == word) found = redop;
                                   }
                                   return found;
                                 }));
  AIT_ASSIGN_OR_RETURN(options.min_bytes, ParseByteSize("--min-size", text("min-size")));
  AIT_ASSIGN_OR_RETURN(options.max_bytes, ParseByteSize("--max-size", text("max-size")));
  if (options.min_bytes > options.max_bytes) {
    return InvalidArgumentError("--min-size ", options.min_bytes, " is more than --max-size ",
                                options.max_bytes);
  }
  if (options.max_bytes < 8) {
    return InvalidArgumentError("--max-size ", options.max_bytes,
                                " is less than one element of 8 bytes; nothing would be measured");
  }
  AIT_ASSIGN_OR_RETURN(options.factor, ParseNumber("--factor", text("factor"), 1.01, 1e9,
                                                   "a number above 1, such as 2"));
  AIT_ASSIGN_OR_RETURN(options.iterations, ParseNumber("--iters", text("iters"), 1, 100'000'000,
                                                       "a whole number, at least 1"));
  AIT_ASSIGN_OR_RETURN(options.warmup, ParseNumber("--warmup", text("warmup"), 0, 100'000'000,
                                                   "a whole number, at least 0"));
  AIT_ASSIGN_OR_RETURN(options.root,
                       ParseNumber("--root", text("root"), 0, kMaxLaunchRanks - 1, "a rank"));
  if (parsed.count("json") != 0) request.json = text("json");
  return request;
}

/// What one rank does. Rank 0 prints. Returns the exit code.
StatusOr<int> Measure(Communicator& all, Request request) {
  CommBenchRun& run = request.run;
  run.ranks = all.size().value();
  run.transport = all.transport_name();
  if (run.options.root >= run.ranks) {
    return InvalidArgumentError("--root ", run.options.root, " is not one of the ", run.ranks,
                                " ranks");
  }
  MemoryHandle memory;
  if (request.arena) memory = all.memory();
  run.memory = memory ? "arena" : "heap";
  if (!memory) memory = HeapResource::Create();
  const bool prints = all.rank() == Rank(0);
  if (prints) std::fputs(CommBenchHeader(run).c_str(), stdout);
  std::vector<CommBenchRow> rows;
  AIT_RETURN_IF_ERROR(MeasureCollectives(all, memory, run.options, [&](const CommBenchRow& row) {
    rows.push_back(row);
    if (!prints) return;
    std::fputs(CommBenchLine(row).c_str(), stdout);
    std::fflush(stdout);
  }));
  AIT_RETURN_IF_ERROR(all.Barrier().Wait());
  if (prints) std::fputs(CommBenchFooter(rows).c_str(), stdout);
  if (prints && !request.json.empty()) {
    std::ofstream file(request.json);
    file << CommBenchJson(run, rows);
    if (!file.flush()) return UnavailableError("cannot write ", request.json);
  }
  // Rank 0 alone says so: a rank that fails first would end it before it has printed.
  return !prints || CountWrong(rows) == 0 ? kSuccess : kFailure;
}

StatusOr<int> MeasureThreads(const Request& request) {
  const auto ranks = MakeThreadGroup(WorldSize(request.run.ranks));
  std::vector<StatusOr<int>> codes(ranks.size(), kSuccess);
  std::vector<std::thread> threads;
  for (std::size_t r = 0; r < ranks.size(); ++r) {
    threads.emplace_back([&, r] {
      codes[r] = Measure(*ranks[r], request);
      if (!codes[r].ok()) ranks[r]->Abort(codes[r].status());  // or the others wait for it
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const StatusOr<int>& code : codes) AIT_RETURN_IF_ERROR(code.status());
  return codes.front();
}

/// One rank of a launch, ours or another's.
StatusOr<int> MeasureRank(const Request& request) {
  AIT_ASSIGN_OR_RETURN(const std::unique_ptr<World> world,
                       World::FromEnvironment({.transport = SharedMemory()}));
  if (world->store() == nullptr) return Measure(*world->communicator(), request);
  // A group of its own, whose transport can be told what to leave out.
  AIT_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport,
                       JoinSharedMemory(*world->store(), "ait/bench", world->rank(), world->size(),
                                        Deadline::After(std::chrono::minutes(1))));
  internal::SetCheckSignatures(*transport, request.run.signatures);
  Communicator all(std::move(transport));
  return Measure(all, request);
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

int RunComm(const cxxopts::ParseResult& parsed, int argc, char** argv) {
  const StatusOr<Request> request = ReadRequest(parsed);
  if (!request.ok()) return FailUsage("bench", Message(request.status()));
  const auto run = [&]() -> StatusOr<int> {
    if (request->threads) return MeasureThreads(*request);
    AIT_ASSIGN_OR_RETURN(const LaunchInfo launch, LaunchInfo::FromEnv(Env::FromProcess()));
    if (launch.launched_by != LaunchedBy::kNobody) return MeasureRank(*request);
    return LaunchRanks(request->run.ranks, argc, argv);
  };
  const StatusOr<int> code = run();
  return code.ok() ? *code : Fail("bench", code.status());
}

}  // namespace

int RunBench(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "memory") return RunMemoryBench(argc, argv);
  if (argc > 1 && std::string_view(argv[1]) == "io") return RunIoBench(argc, argv);
  cxxopts::Options options = MakeOptions();
  return RunTopic({.subcommand = "bench",
                   .name = "comm",
                   .ask = "say what to measure",
                   .examples = kExamples,
                   .others = " or ait bench memory or ait bench io PATH"},
                  options, argc, argv,
                  [&](const cxxopts::ParseResult& parsed) { return RunComm(parsed, argc, argv); });
}

}  // namespace ait::cli

// SPDX-License-Identifier: Apache-2.0
#include "cli/hang.h"

#include <cstdio>
#include <cxxopts.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/flight_files.h"
#include "cli/program.h"

namespace ait::cli {
namespace {

constexpr int kCauseFound = 3;

constexpr char kExamples[] = R"(
Reads rank-N.json of every rank: records of the last operations, which a rank writes into the
directory AIT_FLIGHT_DIRECTORY when an operation fails or hangs.

Exit codes:
  0  nothing is wrong: no operation failed, nobody waits for another
  1  no record can be read
  2  wrong usage
  3  a cause was found; it is the first line

Examples:
  AIT_FLIGHT_DIRECTORY=flight ait run -n 4 -- ./train
  ait hang flight
)";

void Print(const std::string& text) { std::printf("%s\n", text.c_str()); }

const RankReport* Find(const std::vector<RankReport>& reports, Rank rank) {
  for (const RankReport& report : reports)
    if (report.rank == rank) return &report;
  return nullptr;
}

/// What to do about it.
std::string NextCommand(const HangVerdict& verdict, const std::vector<RankReport>& reports) {
  const RankReport* rank = verdict.ranks.empty() ? nullptr : Find(reports, verdict.ranks.front());
  const bool has_process = rank != nullptr && rank->pid != 0;
  const std::string on = has_process ? StrCat("on ", rank->host, ": ") : std::string();
  switch (verdict.cause) {
    case HangCause::kNone:
      return {};
    case HangCause::kDied:
      return StrCat("look at the last lines that rank ", verdict.ranks.front(),
                    " wrote (ait run --log-dir logs), and for the memory killer: dmesg | grep -i "
                    "killed");
    case HangCause::kSilent:
      if (!has_process) {
        return StrCat("rank ", verdict.ranks.front(),
                      " left no record: it was killed, is stopped, or could not write; look at the "
                      "last lines that it wrote");
      }
      return StrCat(on, "grep State /proc/", rank->pid, "/status (T: stopped; kill -CONT ",
                    rank->pid, " lets it go on)");
    case HangCause::kMissing:
      return has_process
                 ? StrCat(on, "gdb -p ", rank->pid,
                          " -batch -ex 'thread apply all bt', if the process is still there")
                 : std::string();
    case HangCause::kMismatch:
      return "look at the two calls above: issue the same collectives in the same order on every "
             "rank, and let none depend on data of one rank";
    case HangCause::kSlow:
      return "ait doctor net: which pairs of ranks connect, and how fast";
    case HangCause::kFailed:
      return "the error above is the first one; the others follow from it";
  }
  return {};
}

void PrintRanks(const std::vector<RankReport>& reports) {
  Print("\nranks at that moment");
  for (const RankReport& report : reports) {
    std::string line = StrCat("  rank ", report.rank, ": ");
    if (!report.is_known) {
      Print(line +
            (report.presence == RankReport::Presence::kDied ? "died, no record" : "no record"));
      continue;
    }
    line += StrCat("pid ", report.pid, " on ", report.host);
    if (const std::string where = report.Where(); !where.empty()) line += ", " + where;
    Print(line);
    for (const ReportedGroup& group : report.groups) {
      std::string text = StrCat("    group ", group.name, ": called ", group.issued, ", finished ",
                                group.finished);
      if (group.current) {
        text += StrCat("; ", group.current->state, ": ", group.current->Describe());
        if (!group.current->code.empty()) text += StrCat(" (", group.current->code, ")");
      }
      Print(text);
    }
  }
}

int Judge(const std::string& directory) {
  const StatusOr<FlightFiles> files = ReadFlightFiles(directory);
  if (!files.ok()) return Fail("hang", files.status());
  const std::vector<RankReport> reports = ReportsOf(*files);
  HangVerdict verdict = ait::Judge(reports);
  // A death explains a mismatch of what came after; else the records of two ranks say it all.
  if (verdict.cause != HangCause::kDied) {
    if (std::optional<HangVerdict> mismatch = FindMismatch(*files)) verdict = *std::move(mismatch);
  }
  Print(StrCat(Name(verdict.cause), ": ", verdict.text));
  if (const std::string next = NextCommand(verdict, reports); !next.empty()) Print("next: " + next);
  PrintRanks(reports);
  if (const std::string straggler = FindStraggler(*files); !straggler.empty())
    Print("\nbefore that, " + straggler);
  bool is_first = true;
  for (const FlightFile& file : files->files) {
    if (file.hang_reports.empty()) continue;
    if (is_first) Print("\nlast reports while the ranks waited");
    is_first = false;
    Print(StrCat("  rank ", file.rank.rank, ": ", file.hang_reports.back()));
  }
  for (const std::string& problem : files->problems) Print("\nnot read: " + problem);
  return verdict.cause == HangCause::kNone ? kSuccess : kCauseFound;
}

}  // namespace

int RunHang(int argc, char** argv) {
  cxxopts::Options options("ait hang",
                           "Tell from the records of the ranks why a run hung or failed.\n");
  options.positional_help("DIR");
  options.add_options()("h,help", "show this help")("directory", "where the records are",
                                                    cxxopts::value<std::string>());
  options.parse_positional({"directory"});
  try {
    const cxxopts::ParseResult words = options.parse(argc, argv);
    if (words.count("help") > 0) {
      std::printf("%s%s", options.help().c_str(), kExamples);
      return kSuccess;
    }
    if (!words.unmatched().empty()) {
      return FailUsage("hang", StrCat("unexpected argument '", words.unmatched().front(), "'"));
    }
    if (words.count("directory") == 0) return FailUsage("hang", "the directory is missing");
    return Judge(words["directory"].as<std::string>());
  } catch (const std::exception& error) {
    return FailUsage("hang", error);
  }
}

}  // namespace ait::cli

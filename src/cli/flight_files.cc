// SPDX-License-Identifier: Apache-2.0
#include "cli/flight_files.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <system_error>
#include <utility>

namespace ait::cli {
namespace {

using std::chrono::milliseconds;
using Json = nlohmann::json;

/// A field of an object, or `fallback` if it is not there or of another type.
template <typename T>
T Get(const Json& object, const char* key, T fallback) {
  if (!object.is_object()) return fallback;
  const auto found = object.find(key);
  if (found == object.end()) return fallback;
  if constexpr (std::is_same_v<T, std::string>) {
    return found->is_string() ? found->template get<std::string>() : fallback;
  } else if constexpr (std::is_same_v<T, bool>) {
    return found->is_boolean() ? found->template get<bool>() : fallback;
  } else {
    return found->is_number_integer() ? found->template get<T>() : fallback;
  }
}

Json Array(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_array() ? *found : Json::array();
}

FileOperation ParseOperation(const Json& json) {
  FileOperation parsed{.group = Get(json, "group", std::string()),
                       .issued_us = Get(json, "issued_us", std::int64_t{0}),
                       .finished_us = Get(json, "finished_us", std::int64_t{0})};
  ReportedOperation& operation = parsed.operation;
  operation.sequence = Get(json, "sequence", std::uint64_t{0});
  operation.kind = Get(json, "kind", std::string("unknown"));
  operation.reduce = Get(json, "reduce", std::string());
  operation.dtype = Get(json, "dtype", std::string());
  operation.count = Get(json, "count", std::int64_t{0});
  const std::string hash = Get(json, "parts_hash", std::string("0"));
  std::from_chars(hash.data(), hash.data() + hash.size(), operation.parts_hash);
  operation.peer = Get(json, "peer", std::int32_t{0});
  operation.tag = Get(json, "tag", std::uint32_t{0});
  operation.label = Get(json, "label", std::string());
  operation.state = Get(json, "state", std::string());
  operation.code = Get(json, "code", std::string());
  return parsed;
}

StatusOr<FlightFile> ReadFile(const std::string& path) {
  std::ifstream stream(path);
  const Json json = Json::parse(stream, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object() || Get(json, "format", std::string()) != "ait-flight-1") {
    return DataLossError(path, " is not a whole record of the format ait-flight-1");
  }
  FlightFile file;
  file.rank.rank = Rank(Get(json, "rank", -1));
  file.size = Get(json, "size", 0);
  if (file.rank.rank < Rank(0) || file.rank.rank.value() >= file.size) {
    return DataLossError(path, " is of rank ", file.rank.rank, " of ", file.size);
  }
  file.rank.is_known = true;
  file.rank.host = Get(json, "host", std::string());
  file.rank.pid = Get(json, "pid", std::int64_t{0});
  file.rank.failure = Get(json, "failure", std::string());
  file.written_us = Get(json, "written_us", std::int64_t{0});
  for (const Json& told : Array(json, "hang_reports"))
    if (told.is_string()) file.hang_reports.push_back(told);
  for (const Json& note : Array(json, "notes")) {
    file.notes.push_back({.step = Get(note, "step", std::int64_t{0}),
                          .phase = Get(note, "phase", std::string()),
                          .time_us = Get(note, "time_us", std::int64_t{0})});
  }
  for (const Json& group : Array(json, "groups")) {
    ReportedGroup& parsed = file.rank.groups.emplace_back();
    parsed.name = Get(group, "name", std::string());
    parsed.issued = Get(group, "issued", std::uint64_t{0});
    parsed.finished = Get(group, "finished", std::uint64_t{0});
    parsed.closed = Get(group, "closed", false);
    for (const Json& member : Array(group, "members"))
      if (member.is_number_integer()) parsed.members.push_back(Rank(member.get<int>()));
  }
  for (const Json& operation : Array(json, "operations"))
    file.operations.push_back(ParseOperation(operation));
  return file;
}

/// An error of its own, not one that follows from another rank's.
bool IsCause(const ReportedOperation& operation) {
  return operation.state == "failed" && operation.code != "ABORTED" &&
         operation.code != "CANCELLED" && !operation.is_message();
}

std::int64_t MomentOf(const FlightFiles& files) {
  std::int64_t written = 0;
  std::int64_t failed = std::numeric_limits<std::int64_t>::max();
  for (const FlightFile& file : files.files) {
    written = std::max(written, file.written_us);
    for (const FileOperation& one : file.operations) {
      if (!IsCause(one.operation)) continue;
      failed = std::min(failed, one.finished_us != 0 ? one.finished_us : one.issued_us);
    }
  }
  return failed == std::numeric_limits<std::int64_t>::max() ? written : failed;
}

/// Lower is told first: what failed by itself or waits, then what followed from that.
int Priority(const ReportedOperation& operation) {
  return (operation.state == "failed" && !IsCause(operation) ? 2 : 0) +
         (operation.is_message() ? 1 : 0);
}

/// What the rank was doing at the moment: later operations are left out.
RankReport AsOf(const FlightFile& file, std::int64_t moment) {
  RankReport report = file.rank;
  for (const FileNote& note : file.notes) {
    if (note.time_us > moment) continue;
    report.step = note.step;
    report.phase = note.phase;
    report.age = milliseconds((moment - note.time_us) / 1000);
  }
  for (ReportedGroup& group : report.groups) {
    std::uint64_t first = group.issued + 1;  // of those that came later
    for (const FileOperation& one : file.operations) {
      if (one.group != group.name) continue;
      if (one.issued_us > moment) {
        if (one.operation.sequence != 0) first = std::min(first, one.operation.sequence);
        continue;
      }
      if (one.operation.state == "done") continue;
      ReportedOperation operation = one.operation;
      operation.age = milliseconds((moment - one.issued_us) / 1000);
      if (!group.current || Priority(operation) < Priority(*group.current))
        group.current = std::move(operation);
    }
    group.issued = first - 1;
    group.finished = std::min(group.finished, group.issued);
  }
  return report;
}

/// Ranks that others saw die.
std::set<int> DeadRanks(const FlightFiles& files) {
  static const std::regex kDied(
      "rank [0-9]+ \\(([0-9]+) of the world\\) (?:has )?died|rank ([0-9]+) (?:has )?died");
  std::set<int> dead;
  for (const FlightFile& file : files.files) {
    const std::string& text = file.rank.failure;
    for (std::sregex_iterator it(text.begin(), text.end(), kDied), end; it != end; ++it) {
      const std::string number = (*it)[1].matched ? (*it)[1].str() : (*it)[2].str();
      int rank = -1;
      std::from_chars(number.data(), number.data() + number.size(), rank);
      dead.insert(rank);
    }
  }
  return dead;
}

}  // namespace

StatusOr<FlightFiles> ReadFlightFiles(const std::string& directory) {
  FlightFiles files;
  std::error_code error;
  std::map<int, FlightFile> by_rank;
  for (auto entry = std::filesystem::directory_iterator(directory, error);
       !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.rfind("rank-", 0) != 0 || entry->path().extension() != ".json") continue;
    StatusOr<FlightFile> file = ReadFile(entry->path().string());
    if (!file.ok()) {
      files.problems.push_back(Message(file.status()));
      continue;
    }
    files.size = std::max(files.size, file->size);
    const int rank = file->rank.rank.value();
    by_rank.insert_or_assign(rank, *std::move(file));
  }
  if (error) return NotFoundError(directory, " cannot be read: ", error.message());
  if (by_rank.empty()) {
    return NotFoundError("no record rank-N.json can be read in ", directory,
                         files.problems.empty() ? "" : ": ",
                         files.problems.empty() ? "" : files.problems.front(),
                         "; start the run with AIT_FLIGHT_DIRECTORY=DIR; records are written when "
                         "an operation fails or hangs");
  }
  for (int rank = 0; rank < files.size; ++rank) {
    const auto found = by_rank.find(rank);
    if (found == by_rank.end()) {
      files.missing.push_back(Rank(rank));
    } else {
      files.files.push_back(std::move(found->second));
    }
  }
  return files;
}

std::vector<RankReport> ReportsOf(const FlightFiles& files) {
  const std::int64_t moment = MomentOf(files);
  const std::set<int> dead = DeadRanks(files);
  std::vector<RankReport> reports;
  for (const FlightFile& file : files.files) {
    reports.push_back(AsOf(file, moment));
    if (dead.contains(file.rank.rank.value()))
      reports.back().presence = RankReport::Presence::kDied;
  }
  for (const Rank rank : files.missing) {
    reports.push_back({.rank = rank,
                       .presence = dead.contains(rank.value()) ? RankReport::Presence::kDied
                                                               : RankReport::Presence::kSilent});
  }
  return reports;
}

std::optional<HangVerdict> FindMismatch(const FlightFiles& files) {
  struct First {
    Rank rank;
    const FileOperation* operation;
  };
  std::map<std::pair<std::string, std::uint64_t>, First> seen;
  std::optional<HangVerdict> verdict;
  std::int64_t earliest = std::numeric_limits<std::int64_t>::max();
  for (const FlightFile& file : files.files) {
    for (const FileOperation& one : file.operations) {
      if (one.operation.sequence == 0) continue;
      const auto [at, is_new] =
          seen.try_emplace({one.group, one.operation.sequence}, First{file.rank.rank, &one});
      if (is_new) continue;
      const auto& [rank, first] = at->second;
      const std::string fields = DifferingFields(first->operation, one.operation);
      if (fields.empty() || one.issued_us >= earliest) continue;
      earliest = one.issued_us;
      verdict = HangVerdict{
          .cause = HangCause::kMismatch,
          .ranks = {rank, file.rank.rank},
          .group = one.group,
          .operation = first->operation.Describe(),
          .text = StrCat("the ranks ask for different operations in group ", one.group, " (",
                         fields, "): rank ", rank, ": ", first->operation.Describe(), "; rank ",
                         file.rank.rank, ": ", one.operation.Describe())};
    }
  }
  return verdict;
}

std::string FindStraggler(const FlightFiles& files) {
  constexpr double kLeastMs = 10;
  std::map<std::uint64_t, std::map<int, std::int64_t>> issued;  // by sequence, of the whole world
  for (const FlightFile& file : files.files) {
    for (const FileOperation& one : file.operations) {
      if (one.group == "world" && one.operation.sequence != 0 && one.operation.state == "done")
        issued[one.operation.sequence][file.rank.rank.value()] = one.issued_us;
    }
  }
  std::map<int, double> late_ms;
  int collectives = 0;
  for (const auto& [sequence, times] : issued) {
    if (static_cast<int>(times.size()) != files.size || files.size < 2) continue;
    ++collectives;
    std::int64_t first = std::numeric_limits<std::int64_t>::max();
    for (const auto& [rank, time] : times) first = std::min(first, time);
    for (const auto& [rank, time] : times)
      late_ms[rank] += static_cast<double>(time - first) / 1000;
  }
  if (collectives < 5) return {};
  std::vector<std::pair<double, int>> order;
  for (const auto& [rank, ms] : late_ms) order.emplace_back(ms / collectives, rank);
  std::sort(order.rbegin(), order.rend());
  if (order[0].first < kLeastMs || order[0].first < 2 * order[1].first) return {};
  return StrCat("rank ", order[0].second,
                " comes last: ", static_cast<std::int64_t>(order[0].first),
                " ms after the first rank, on average over ", collectives,
                " collectives (the clocks of several hosts may differ)");
}

}  // namespace ait::cli

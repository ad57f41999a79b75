// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CLI_FLIGHT_FILES_H_
#define AIT_CLI_FLIGHT_FILES_H_

// The records of a run's ranks, read from a directory, and what they say together.
//
// Ranks write at different times, some long after the run broke. So everything is told as of one
// moment: when the first operation failed, or, if none did, when the last record was written.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "ait/base/status.h"
#include "ait/comm/hang_report.h"

namespace ait::cli {

/// One operation of a file; times are microseconds since 1970, 0 if there is none.
struct FileOperation {
  std::string group;
  ReportedOperation operation;
  std::int64_t issued_us = 0;
  std::int64_t finished_us = 0;
};

struct FileNote {
  std::int64_t step = 0;
  std::string phase;
  std::int64_t time_us = 0;
};

struct FlightFile {
  RankReport rank;  // as of the time it was written; ages are not filled
  int size = 1;
  std::int64_t written_us = 0;
  std::vector<std::string> hang_reports;
  std::vector<FileNote> notes;
  std::vector<FileOperation> operations;  // oldest first
};

struct FlightFiles {
  std::vector<FlightFile> files;      // by rank
  int size = 0;                       // of the world
  std::vector<Rank> missing;          // ranks without a file
  std::vector<std::string> problems;  // files that cannot be read
};

/// **Errors.** NotFound: no record at all.
StatusOr<FlightFiles> ReadFlightFiles(const std::string& directory);

/// The reports of all ranks as of the moment that counts.
std::vector<RankReport> ReportsOf(const FlightFiles& files);

/// The first operation that ranks called differently, as a verdict; nullopt if they agree.
std::optional<HangVerdict> FindMismatch(const FlightFiles& files);

/// "rank 1 comes last: …" if one rank keeps the others waiting; empty if none stands out.
std::string FindStraggler(const FlightFiles& files);

}  // namespace ait::cli

#endif  // AIT_CLI_FLIGHT_FILES_H_

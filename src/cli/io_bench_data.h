// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CLI_IO_BENCH_DATA_H_
#define AIT_CLI_IO_BENCH_DATA_H_

// What `ait bench io` measures, and how it shows it. The measurements take any Storage: a web
// server's or an object store's are measured by the same code as files.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "ait/base/status.h"
#include "ait/data/storage/storage.h"

namespace ait::cli {

/// One line of the table.
struct IoBenchRow {
  std::string pattern;  // "sequential", "random" or "files"
  std::string cache;    // "cold", "warm" or "as it is"
  std::string engine;   // of the storage; "plain" is pread into one buffer, without a storage
  std::int64_t block_bytes = 0;
  int depth = 0;  // blocks ahead; of random reads how many go together
  std::int64_t bytes = 0;
  std::int64_t reads = 0;  // or files
  double seconds = 0;
  double cpu_seconds = 0;       // of the process
  std::optional<double> ratio;  // to the plain row of the same pattern, cache and block
};

struct IoBenchShape {
  std::int64_t block_bytes = std::int64_t{1} << 20;
  int depth = 0;
  std::int64_t most_bytes = std::int64_t{1} << 30;  // of the object, from its beginning
  std::int64_t most_reads = 20'000;                 // of random reads and files
  double most_seconds = 3;                          // after which a measurement ends
};

/// One stream from the beginning of the object.
StatusOr<IoBenchRow> MeasureSequential(const Storage& storage, const std::string& url,
                                       const IoBenchShape& shape);
/// Reads of `block_bytes` at random places, `depth` with one call (one at a time: ReadAt).
StatusOr<IoBenchRow> MeasureRandom(const Storage& storage, const std::string& url,
                                   const IoBenchShape& shape);
/// Opens and reads each of the objects.
StatusOr<IoBenchRow> MeasureFiles(const Storage& storage, const std::vector<std::string>& urls,
                                  const IoBenchShape& shape);
/// pread from the beginning of a file into one buffer: the most that a reader without tricks gets.
StatusOr<IoBenchRow> MeasurePlain(const std::string& path, const IoBenchShape& shape);

/// Sets `ratio` of every row that has a plain one.
void SetRatios(std::vector<IoBenchRow>& rows);

/// Takes a file out of the page cache as far as the kernel does so; returns the part that stayed,
/// or -1 if that is unknown.
StatusOr<double> DropFromCache(const std::string& path);
/// Takes everything out of the page cache of this host. **Errors.** PermissionDenied: not root.
Status DropAllCaches();

std::string IoBenchHeader();
std::string IoBenchLine(const IoBenchRow& row);
/// `about` says in words what was measured, one line each.
std::string IoBenchJson(const std::string& url, const std::vector<std::string>& about,
                        const std::vector<IoBenchRow>& rows);

}  // namespace ait::cli

#endif  // AIT_CLI_IO_BENCH_DATA_H_

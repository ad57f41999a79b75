// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_BENCHMARKS_DATA_DATA_FILES_H_
#define AIT_BENCHMARKS_DATA_DATA_FILES_H_

// The files that the data benchmark reads: made once, in a directory of their own.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace ait::benchmarks {

struct SampleFiles {
  std::string directory;
  std::vector<std::string> shards;  // paths, in order
  std::int64_t samples = 0;
  std::int64_t payload_bytes = 0;  // of the samples, without what the format adds
  std::int64_t file_bytes = 0;
};

/// Tar shards of 64 MiB with samples of one field "bin", sizes uniform from `low` to `high` bytes.
SampleFiles MakeTars(const std::string& directory, std::int64_t total_bytes, std::int64_t low,
                     std::int64_t high);

/// A folder of `count` files of 1 to 3 KiB, 1,000 to a directory.
SampleFiles MakeFolder(const std::string& directory, std::int64_t count);

/// `count` tars of four samples each, with their indexes.
SampleFiles MakeManyShards(const std::string& directory, std::int64_t count);

/// uint16 tokens below 50,000: "tokens.tokens" of ait, and "tokens.u16" without a header.
void MakeTokens(const std::string& directory, std::int64_t count);

/// The MDS shards in a directory; empty if there are none.
SampleFiles MdsShards(const std::string& directory);

/// Takes the pages of these files out of the page cache (they must be clean).
void DropFromCache(const std::vector<std::string>& paths);
/// Drops all clean pages, directories and inodes; false if that is not permitted.
bool DropAllCaches();
/// Reads all of the files once.
void Warm(const std::vector<std::string>& paths);

}  // namespace ait::benchmarks

#endif  // AIT_BENCHMARKS_DATA_DATA_FILES_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_WRITE_SHARDS_H_
#define AIT_DATA_FORMAT_WRITE_SHARDS_H_

// Turns any collection of samples into shards: a folder of a million small files into a few tars
// that are read a hundred times as fast, or one format into another.
//
// The samples keep their order. Which sample goes into which shard follows from the sizes in the
// tables of the source, so that several threads write different shards at the same time, the result does
// not depend on how many they are, and a run that was stopped goes on where it was: a shard that
// has its name is whole. Afterwards every shard is read and compared with what was put into it.
//
//   AIT_ASSIGN_OR_RETURN(auto photos, OpenSamples(storage, "photos/"));          // a folder
//   AIT_ASSIGN_OR_RETURN(WriteReport report,
//                        WriteShards(*photos, {.directory = "packed", .format = "webdataset"}));
//
// Arrays become files in tars, as WebDataset has them: one whole number its digits ("cls": "7"), any
// other npy with ".npy" after the name of the field. Samples of a format without keys have their
// number in the source as their key.
//
// In the directory lies ".packing.jsonl", which belongs to the shards: what was packed, and one line
// for each shard with its size, samples and checksum. `ait pack files` and `ait convert` are this
// function as commands.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "ait/base/status.h"
#include "ait/data/sample_source.h"

namespace ait::inline v0 {

/// What to do if the directory holds shards of something else, or files with the names of shards.
/// Other files that would be read together with the shards (another .tar, an index.json) are refused
/// in any case; those of no matter are let be.
enum class ExistingShards {
  kRefuse,   // FailedPrecondition
  kReplace,  // they are removed first, also those that a killed run did not note
};

struct WriteProgress {
  std::int64_t shards = 0;  // that are complete
  std::int64_t shard_count = 0;
  std::int64_t samples = 0;
  std::int64_t bytes = 0;  // of the shards that are complete
};

struct WriteShardsOptions {
  std::string directory;              // required; made if it does not exist
  std::string format = "webdataset";  // one of KnownFormats() that is written
  /// Most bytes of a shard, for whatever holds more than one sample; 64 KiB to 2^31. Shards are
  /// planned by the sizes of the records and what the format adds for each field, so shards are a
  /// little smaller, down to half for samples of a few bytes. How many fields a sample has and how
  /// much larger its values are than its record is told by folders, and else taken from 16 samples
  /// all over the source: where others have many more, a shard may be larger.
  std::int64_t shard_bytes = std::int64_t{1} << 30;
  std::int64_t shard_samples = std::int64_t{1} << 40;  // most samples of a shard, ≥ 1
  int threads = 0;  // that write; 0: one for each CPU, at most 16
  /// Reads every shard once it is written and compares it with what was put into it.
  bool verify = true;
  ExistingShards existing = ExistingShards::kRefuse;
  /// Bad samples (DataLoss, InvalidArgument) that are left out, in all. 0: the first ends the run.
  std::int64_t max_bad_samples = 0;
  /// Told after each shard, by one thread at a time. Returning false stops the run (Cancelled);
  /// the same call goes on later.
  std::function<bool(const WriteProgress&)> progress = {};
};

/// A sample that was left out.
struct LeftOutSample {
  SamplePlace place;
  std::string reason;
};

struct WriteReport {
  std::int64_t samples = 0;  // in the shards
  std::int64_t bytes = 0;
  std::vector<std::string> shards;  // file names in the directory, in order
  std::int64_t resumed_shards = 0;  // that an earlier run had written
  std::vector<LeftOutSample> left_out;
};

/// **Blocks.** Reads and writes everything. **Errors.** InvalidArgument: an option out of range, a
/// source whose files lie in the directory, a
/// sample that the format cannot hold, a sample larger than 2^31 bytes, or a bad sample beyond the
/// budget (it names the place); FailedPrecondition: see ExistingShards; DataLoss: a shard that does
/// not read back as what was written; ResourceExhausted: the disk is full, and what is complete
/// stays for the next run; Unavailable: another process writes there.
StatusOr<WriteReport> WriteShards(const SampleSource& source, const WriteShardsOptions& options);

}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_WRITE_SHARDS_H_

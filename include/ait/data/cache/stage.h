// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_CACHE_STAGE_H_
#define AIT_DATA_CACHE_STAGE_H_

// Copies a data set to a local directory before the run: plain files of the same names.
//
// A run that reads the directory needs no cache and no network. The copy is parallel within a file
// too, goes on where a killed one was, and is read back before it counts: a file has its name only
// when its checksums fit, and "ait-stage.json" is written when all do.
//
//   AIT_ASSIGN_OR_RETURN(auto source, OpenStorage("s3://bucket/train/", {}));
//   AIT_ASSIGN_OR_RETURN(StageReport report,
//                        Stage(*source, "s3://bucket/train/", {.directory = "/nvme/train"}));
//
// From the shell: `ait stage s3://bucket/train/ /nvme/train`. For data larger than the local disk
// see TieredCache. Files of the directory that the source does not have stay as they are.

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "ait/base/status.h"
#include "ait/data/storage/storage.h"

namespace ait::inline v0 {

enum class StageAction {
  kCopy,
  kPlan,  // only says what would be copied; makes and changes nothing
};

enum class StageVerification {
  kCopied,  // what this call and unfinished ones before it copied
  kAll,     // also what earlier calls finished; damaged parts are copied again
};

struct StageProgress {
  enum class Phase { kCopy, kVerify };
  Phase phase = Phase::kCopy;
  std::int64_t bytes = 0;  // of this phase
  std::int64_t bytes_done = 0;
};

struct StageOptions {
  std::string directory;  // made if it does not exist
  int threads = 8;
  /// What is copied and checked as one: 4 KiB … 1 GiB, a multiple of 4 KiB. Larger for files of
  /// more than 65,536 of them.
  std::int64_t part_bytes = std::int64_t{8} << 20;
  StageAction action = StageAction::kCopy;
  StageVerification verify = StageVerification::kCopied;
  /// Called by one thread at a time, after each part. An error ends the work and is returned.
  std::function<Status(const StageProgress&)> progress = {};
};

struct StageReport {
  std::int64_t files = 0;  // of the source
  std::int64_t bytes = 0;
  std::int64_t found_files = 0;    // were there, finished
  std::int64_t resumed_bytes = 0;  // were there, of unfinished files
  std::int64_t copied_bytes = 0;   // now; with kPlan, to copy
  std::int64_t verified_bytes = 0;
  std::int64_t damaged_parts = 0;  // found by reading back, and copied again
  std::int64_t free_bytes = 0;     // of the directory, before
  std::chrono::duration<double> copy_time{0};
  std::chrono::duration<double> verify_time{0};
};

/// Copies every object of `source` below `prefix`; its name is what follows the prefix.
/// **Blocks.** Until all is copied and compared. **Errors.** ResourceExhausted: less space is free
/// than is needed, before anything is copied. InvalidArgument: an option out of its range, a
/// directory within the source, a name that is no plain path or that two objects would share.
/// FailedPrecondition: another process stages to this directory. Aborted: an object changed
/// meanwhile. DataLoss: the disk does not give back what was written. Those of the storage, the
/// file system and `progress`. After an error, as after a kill, the next call goes on.
StatusOr<StageReport> Stage(const Storage& source, const std::string& prefix,
                            const StageOptions& options);

}  // namespace ait::inline v0

#endif  // AIT_DATA_CACHE_STAGE_H_

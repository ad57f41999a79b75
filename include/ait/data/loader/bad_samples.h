// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_LOADER_BAD_SAMPLES_H_
#define AIT_DATA_LOADER_BAD_SAMPLES_H_

// Samples that cannot be read: how many are borne, what is put in their place, and the file that
// lists them.
//
// By default none is borne: the first one ends the data with an error that names it. With a budget
// the loader goes on: another sample, chosen by the position in the plan, stands in for the bad one,
// so that every rank still gets batches of the same size without asking the others.
//
//   LoaderOptions options = {.bad_samples = {.max_bad_samples = 100, .log_path = "run/bad.jsonl"}};
//
//   auto bad = ReadBadSampleLog("run/bad.jsonl");             // of the last run: do not try again
//   options.bad_samples.exclude = SamplesOf(*bad);
//
// A sample is bad if reading or a transform says DataLoss or InvalidArgument of it, or if a
// transform throws. Anything else (a shard that is missing, changed or not permitted, a server that
// does not answer) is an error of the storage, and ends the data unless the policy says otherwise.
// A part of a sample is never delivered.
//
// Bad samples count when the batch they belong to is delivered, in the order of the plan: which one
// exceeds the budget does not depend on threads. Budgets are those of one rank and one run: a run
// that is resumed begins to count anew, and each rank counts its own.

#include <compare>
#include <cstdint>
#include <limits>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "ait/base/status.h"
#include "ait/base/types.h"

namespace ait::inline v0 {

/// For the budgets of BadSamplePolicy.
inline constexpr std::int64_t kUnlimitedBadSamples = std::numeric_limits<std::int64_t>::max();

/// A sample by its source and number: ids mean something only for equal digests.
struct SampleId {
  std::uint64_t source_digest = 0;
  std::int64_t id = 0;
  auto operator<=>(const SampleId&) const = default;
};

/// What is in the place of a bad sample.
enum class BadSampleAction {
  kReplace,  // another sample of its source, which counts like any other
  kDrop,     // the same, but its weight is 0: the step counts fewer samples
};

/// What an error of the storage is.
enum class StorageErrors {
  kFail,         // the end of the data
  kAsBadSample,  // a bad sample of that shard, within the budgets
};

struct BadSamplePolicy {
  /// Most bad samples in all, of one shard, and after each other without a good one. The one above
  /// ends the data.
  std::int64_t max_bad_samples = 0;
  std::int64_t max_bad_per_shard = kUnlimitedBadSamples;
  std::int64_t max_bad_in_a_row = 100;
  BadSampleAction action = BadSampleAction::kReplace;
  StorageErrors storage_errors = StorageErrors::kFail;
  /// JSON lines, one for each bad sample; all ranks may share the file. Empty: none is written.
  std::string log_path;
  /// Samples that are bad as is known already: they are not read, count in no budget, and others
  /// stand in for them.
  std::vector<SampleId> exclude;
};

/// One line of the log.
struct BadSample {
  std::string source;  // its name
  std::uint64_t source_digest = 0;
  std::int64_t id = 0;
  std::string key;    // empty if it could not be read
  std::string shard;  // file or URL
  std::int64_t offset_bytes = 0;
  std::int64_t size_bytes = 0;
  std::string code;    // of the status, such as "DATA_LOSS"
  std::string reason;  // its text
  Rank rank;
  std::int64_t epoch = 0;
  std::int64_t position = 0;  // in the plan
  std::int64_t attempt = 0;   // 0: what was planned; else the n-th that should have stood in

  bool operator==(const BadSample&) const = default;
};

/// One line of JSON with sorted keys, without a newline. Bytes that are not UTF-8 are replaced.
std::string ToJson(const BadSample& sample);
/// **Errors.** InvalidArgument: not such a line.
StatusOr<BadSample> BadSampleFromJson(std::string_view line);

/// Appends to the list of bad samples. Each line is on the disk when `Append` returns; a process
/// that is killed leaves at most one torn line, which the next writer cuts off. Ranks and processes
/// take turns by a lock of the file.
/// **Thread-safety.** One thread at a time.
class BadSampleLog {
 public:
  /// Opens or makes the file; its directory must exist. Reads what is there.
  /// **Errors.** DataLoss: a line that is not the last is damaged; else by errno.
  static StatusOr<BadSampleLog> Open(std::string path);

  BadSampleLog(BadSampleLog&& other) noexcept;
  BadSampleLog& operator=(BadSampleLog&& other) noexcept;
  ~BadSampleLog();

  /// Adds a line unless the file had one for the same sample at the same place of the same epoch
  /// when it was opened, or has got it from this object since: a run that goes back to its last
  /// checkpoint meets the same samples again. **Errors.** ResourceExhausted: the disk is full.
  Status Append(const BadSample& sample);

  const std::string& path() const { return path_; }

 private:
  struct Place {
    std::uint64_t source_digest;
    std::int64_t id, epoch, position, attempt;
    auto operator<=>(const Place&) const = default;
  };
  explicit BadSampleLog(std::string path) : path_(std::move(path)) {}
  static Place PlaceOf(const BadSample& sample);

  std::string path_;
  int file_ = -1;
  std::set<Place> written_;
};

/// Reads a list; a torn last line is skipped. **Errors.** NotFound; DataLoss: a line that is not
/// the last is damaged, with its number.
StatusOr<std::vector<BadSample>> ReadBadSampleLog(const std::string& path);

/// Whom the list is about, each once: what a next run may exclude.
std::vector<SampleId> SamplesOf(const std::vector<BadSample>& list);

/// Counts bad samples against a policy. For loaders and those who build their own.
/// **Thread-safety.** One thread at a time.
class BadSampleBudget {
 public:
  explicit BadSampleBudget(const BadSamplePolicy& policy);

  /// **Errors.** The first budget that is exceeded, with the sample and how to raise it.
  Status CountBad(const BadSample& sample);
  void CountGood() { in_a_row_ = 0; }

  std::int64_t total() const { return total_; }

 private:
  std::int64_t max_total_;
  std::int64_t max_per_shard_;
  std::int64_t max_in_a_row_;
  std::int64_t total_ = 0;
  std::int64_t in_a_row_ = 0;
  std::unordered_map<std::string, std::int64_t> by_shard_;
};

}  // namespace ait::inline v0

#endif  // AIT_DATA_LOADER_BAD_SAMPLES_H_

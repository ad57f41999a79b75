// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_STORAGE_LOCAL_CHOICE_INTERNAL_H_
#define AIT_DATA_STORAGE_LOCAL_CHOICE_INTERNAL_H_

// Which engine reads what, from facts that are found once for each file system.

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "ait/data/storage/local_storage.h"
#include "ait/memory/fork_safe_mutex.h"
#include "data/storage/local_engines_internal.h"

namespace ait::inline v0::internal {

/// What a stream would read.
struct StreamShape {
  std::int64_t length_bytes = 0;
  int depth = 0;
};

/// Sets `streams` and its reason from the facts in `choice`. Without a look at the system.
void ChooseForStreams(const LocalStorageOptions& options, const FileSystem& file_system,
                      StreamShape shape, EngineChoice& choice);
/// The same of `reads`.
void ChooseForReads(const LocalStorageOptions& options, const FileSystem& file_system,
                    EngineChoice& choice);

/// What the objects of a storage share. **Thread-safety.** All calls may come from any thread.
class LocalChooser {
 public:
  explicit LocalChooser(const LocalStorageOptions& options);

  const LocalStorageOptions& options() const { return options_; }
  /// nullptr in a forked child, which has no threads.
  std::shared_ptr<ReadPool> pool() const;

  CheckPolicy PolicyFor(const LocalFile& file);
  /// The choice for a stream, with the facts it is made of.
  EngineChoice ForStream(const LocalFile& file, StreamRange range, int depth);
  /// Whether small reads of the file go by a mapping.
  bool Maps(const LocalFile& file);
  /// nullptr where it cannot be, after a warning.
  std::unique_ptr<MappedFile> Map(const LocalFile& file);
  EngineChoice Explain(const LocalFile& file);
  /// Says that an engine that was asked for, or should be best, does not work.
  void Warn(const LocalFile& file, LocalEngine engine, const Status& why);

 private:
  struct Facts {
    FileSystem file_system;
    std::optional<std::int64_t> direct_alignment;
    std::string uring_refusal;
    std::optional<SmallReadTimes> small_reads;
    std::set<std::pair<LocalEngine, bool>> told;  // engines the log has heard of; true: warnings
  };
  // With the lock held.
  Facts& FactsOf(const LocalFile& file);
  void FindDirect(const LocalFile& file, Facts& facts);
  void FindSmallReads(const LocalFile& file, Facts& facts);
  void Tell(Facts& facts, LocalEngine engine, Severity severity, const std::string& text);

  const LocalStorageOptions options_;
  const std::shared_ptr<ReadPool> pool_;
  const int forks_;
  ForkSafeMutex mutex_;
  std::map<std::uint64_t, Facts> facts_;  // by device
};

}  // namespace ait::inline v0::internal

#endif  // AIT_DATA_STORAGE_LOCAL_CHOICE_INTERNAL_H_

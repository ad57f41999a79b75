// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_CORPUS_DIRECTORY_INTERNAL_H_
#define AIT_DATA_CORPUS_DIRECTORY_INTERNAL_H_

// A directory while a corpus is packed into it: held by one process, and kept clean.

#include <string>
#include <utility>
#include <vector>

#include "base/file_descriptor.h"
#include "data/manifest_internal.h"

namespace ait::inline v0 {
namespace internal {

class CorpusDirectory {
 public:
  /// Makes the directory if need be and locks it. **Errors.** Unavailable: another process packs
  /// there.
  static StatusOr<CorpusDirectory> Lock(const std::string& path);

  const std::string& path() const { return path_; }

  /// Removes shards and temporary files that `manifest` does not list, such as those of a process
  /// that was killed. Files of other names are left alone.
  void RemoveStale(const Manifest& manifest) const;

  /// Removes the shards of these names that a failed run added; the manifest's own stay.
  void RemoveAdded(const std::vector<std::string>& names) const;

 private:
  CorpusDirectory(std::string path, FileDescriptor fd)
      : path_(std::move(path)), fd_(std::move(fd)) {}

  std::string path_;
  FileDescriptor fd_;  // the lock goes with it
};

/// Names of shards: shard-<corpus>-<number>.tokens, so that old and new may lie side by side.
std::string ShardName(std::uint64_t corpus_digest, std::int64_t number);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_CORPUS_DIRECTORY_INTERNAL_H_

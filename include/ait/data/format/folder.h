// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_FOLDER_H_
#define AIT_DATA_FORMAT_FOLDER_H_

// A directory of single files as samples: what a data set is before it is packed.
//
// Good to start with and as the input of `ait pack`; every sample costs an open, so that shards are
// many times faster for small files. Files that share a name up to the first dot of their last
// component are one sample, as in WebDataset: a/1.jpg and a/1.txt become the sample "a/1" with the
// fields "jpg" and "txt"; the names of fields are in lower case.
//
//   AIT_ASSIGN_OR_RETURN(auto cats, OpenFolder(storage, "pets", {.labels = FolderLabels::kTop}));
//
// Hidden files (a component that begins with '.') are left out, and so are files without an
// extension where files are grouped. Samples are in the order of the bytes of their keys. Symbolic
// links are followed or not as the storage lists them.

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "ait/base/status.h"
#include "ait/data/sample_source.h"
#include "ait/data/storage/storage.h"

namespace ait::inline v0 {

enum class FolderGrouping {
  kByKey,   // files of one key are the fields of one sample
  kSingle,  // every file is a sample of its own; its key is its name with the extension
};

enum class FolderLabels {
  kNone,
  /// The first directory below the root is the class: the fields "class" (its name) and "label"
  /// (int64, its place in the order of the bytes of all names).
  kTop,
};

struct FolderOptions {
  FolderGrouping grouping = FolderGrouping::kByKey;
  FolderLabels labels = FolderLabels::kNone;
  /// Largest file that is read; a larger one is a bad sample.
  std::int64_t max_record_bytes = std::int64_t{1} << 30;
};

/// Lists the directory once; no file is opened before its sample is read. **Blocks.**
/// **Errors.** NotFound: no files there; InvalidArgument: a file outside of any directory where
/// labels are asked for, or two files of one key and extension; those of `List`.
StatusOr<std::shared_ptr<const SampleSource>> OpenFolder(std::shared_ptr<const Storage> storage,
                                                         const std::string& url,
                                                         const FolderOptions& options = {});

/// The same of files that are listed already.
StatusOr<std::shared_ptr<const SampleSource>> OpenFolder(std::shared_ptr<const Storage> storage,
                                                         const std::string& url,
                                                         std::span<const ObjectInfo> objects,
                                                         const FolderOptions& options = {});

}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_FOLDER_H_

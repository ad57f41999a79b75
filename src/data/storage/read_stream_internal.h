// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_STORAGE_READ_STREAM_INTERNAL_H_
#define AIT_DATA_STORAGE_READ_STREAM_INTERNAL_H_

// A stream of blocks made of ReadAt: in the calling thread, or ahead of it in one of its own.

#include <cstdint>
#include <memory>
#include <string>

#include "ait/base/status.h"
#include "ait/data/storage/storage.h"

namespace ait::inline v0 {
namespace internal {

/// The range of an object that the options ask for.
struct StreamRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

/// **Errors.** InvalidArgument: an option out of its range; OutOfRange: it begins beyond the end.
StatusOr<StreamRange> CheckedRange(const ObjectInfo& info, const StreamOptions& options);

/// `object` outlives the stream, which holds `owner`.
StatusOr<std::unique_ptr<ObjectStream>> StreamByReads(const StoredObject& object,
                                                      const StreamOptions& options,
                                                      std::shared_ptr<const void> owner = nullptr);

/// `stream`, which has a thread of its own, of an object of this URL: in a forked child, where that
/// thread is not, it is an error and is left as it is.
std::unique_ptr<ObjectStream> OfThisProcess(std::unique_ptr<ObjectStream> stream, std::string url);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_STORAGE_READ_STREAM_INTERNAL_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_UNPACKED_INTERNAL_H_
#define AIT_DATA_FORMAT_UNPACKED_INTERNAL_H_

// Files compressed as a whole, such as train.npy.gz or part-0.jsonl.zst: what is in them has the
// format.

#include <cstddef>
#include <memory>
#include <vector>

#include "ait/base/status.h"
#include "ait/data/format/shard.h"

namespace ait::inline v0 {
namespace internal {

/// The first bytes of an object as they are, at most `most_bytes`.
StatusOr<std::vector<std::byte>> FileHead(const StoredObject& object, std::size_t most_bytes);

/// The first bytes of what is in an object, at most `most_bytes`.
StatusOr<std::vector<std::byte>> UnpackedHead(const StoredObject& object, std::size_t most_bytes);

/// The object itself, or what it unpacks to if it is compressed.
/// **Errors.** ResourceExhausted: more than `max_unpacked_bytes`; those of `Unpack`.
StatusOr<std::shared_ptr<const StoredObject>> Unpacked(std::shared_ptr<const StoredObject> object,
                                                       const ShardOptions& options);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_UNPACKED_INTERNAL_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_DOCUMENTS_INTERNAL_H_
#define AIT_DATA_FORMAT_DOCUMENTS_INTERNAL_H_

// Documents of a token file as samples, each with the field "tokens".

#include <memory>
#include <string_view>
#include <vector>

#include "ait/base/status.h"
#include "ait/data/format/shard.h"

namespace ait::inline v0 {
namespace internal {

/// `begins` are the first tokens of the documents and the end of the last, ascending; the tokens
/// begin at `offset_bytes` of `object`.
std::unique_ptr<ShardReader> ShardOfDocuments(std::string_view format,
                                              std::shared_ptr<const StoredObject> object,
                                              std::int64_t offset_bytes, DType dtype,
                                              std::vector<std::int64_t> begins,
                                              const ShardOptions& options);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_DOCUMENTS_INTERNAL_H_

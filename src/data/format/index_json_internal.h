// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_INDEX_JSON_INTERNAL_H_
#define AIT_DATA_FORMAT_INDEX_JSON_INTERNAL_H_

// The index.json of a collection, of MDS and of LitData, and the files that it names.

#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>

#include "ait/base/status.h"
#include "ait/data/storage/storage.h"
#include "nlohmann/json.hpp"

namespace ait::inline v0 {
namespace internal {

/// The index.json highest up among these objects; nullptr if there is none.
const ObjectInfo* FindIndexJson(std::span<const ObjectInfo> objects);

struct IndexJson {
  std::string directory;  // of the index, with its slash
  nlohmann::json json;
  std::uint32_t crc32c = 0;  // of its text
};

/// Reads it. **Errors.** InvalidArgument: several, none above the others; DataLoss: no JSON object.
StatusOr<IndexJson> ReadIndexJson(const Storage& storage, const std::string& url,
                                  std::span<const ObjectInfo> objects);

/// A name that leads nowhere but below the directory of the index.
bool IsNameBelow(std::string_view name);

/// Compares a file with hexadecimal hashes by name ("sha1", "md5", …); names that OpenSSL does not
/// have (the xxh family) are passed over. **Errors.** DataLoss: one differs; those of the object.
Status CheckHashes(const StoredObject& object, const nlohmann::json& hashes);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_INDEX_JSON_INTERNAL_H_

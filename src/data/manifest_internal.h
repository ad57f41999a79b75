// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_MANIFEST_INTERNAL_H_
#define AIT_DATA_MANIFEST_INTERNAL_H_

// manifest.json of a packed corpus: what is in the directory, and what it was made of.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/dtype.h"
#include "ait/base/status.h"

namespace ait::inline v0 {
namespace internal {

inline constexpr std::string_view kManifestName = "manifest.json";

struct Manifest {
  struct Source {
    std::string name;  // as the user gave it; for people
    std::int64_t bytes = 0;
    std::uint32_t crc32c = 0;
  };
  struct Shard {
    std::string file;  // a name in the directory of the manifest
    std::int64_t tokens = 0;
    std::uint32_t crc32c = 0;
  };

  std::string tokenizer;
  DType dtype = DType::kUInt8;
  std::int64_t vocabulary_size = 0;
  std::int64_t separator = 0;
  std::int64_t documents = 0;
  std::int64_t tokens = 0;
  std::uint32_t crc32c = 0;  // of all tokens, over the borders of the shards
  std::int64_t shard_tokens = 0;
  std::vector<Source> sources;
  std::vector<Shard> shards;
};

std::string ToJson(const Manifest& manifest);

/// **Errors.** DataLoss: not the text that `ToJson` made. Unimplemented: a newer version.
StatusOr<Manifest> ManifestFromJson(std::string_view text);

/// Reads DIRECTORY/manifest.json. **Errors.** NotFound, and those of `ManifestFromJson`.
StatusOr<Manifest> ReadManifest(const std::string& directory);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_MANIFEST_INTERNAL_H_

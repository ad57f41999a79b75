// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_MDS_INTERNAL_H_
#define AIT_DATA_FORMAT_MDS_INTERNAL_H_

// MDS, all numbers little-endian:
//   u32 n | u32 offset[n + 1], from the start of the file | configuration (JSON) | samples
// A sample is the u32 size of each column that has no fixed one, then the values of all columns.
// Source: github.com/mosaicml/streaming, streaming/base/format/mds.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/status.h"
#include "ait/data/format/formats.h"
#include "ait/data/format/shard.h"
#include "data/format/format_util_internal.h"
#include "nlohmann/json.hpp"

namespace ait::inline v0 {
namespace internal {

/// Column with the key of a sample, which other programs see as one more column.
inline constexpr std::string_view kMdsKeyColumn = "__key__";

struct MdsEncoding {
  enum class Kind { kBytes, kText, kNumber, kArray };
  Kind kind = Kind::kBytes;
  std::optional<NumberType> type;                  // of a number; of an array if it is fixed
  std::optional<std::vector<std::int64_t>> shape;  // of an array if it is fixed

  /// Bytes of every value; nullopt: it varies.
  std::optional<std::int64_t> fixed_bytes() const;
};

/// Reads a name such as "jpeg" or "ndarray:float32:2,3". **Errors.** Unimplemented: pickle and
/// others that are not read; InvalidArgument: no encoding.
StatusOr<MdsEncoding> ParseMdsEncoding(std::string_view name);

struct MdsColumn {
  std::string name;
  std::string encoding_name;
  MdsEncoding encoding;
  std::optional<std::int64_t> fixed_bytes;
};

/// The columns of a configuration, of a shard or of an entry of the index.
StatusOr<std::vector<MdsColumn>> ParseMdsColumns(const nlohmann::json& config);

/// Adds the value of a column to a sample.
Status AddMdsValue(const MdsColumn& column, const ByteView& value, SampleBuilder& builder);

struct MdsHeader {
  std::vector<std::uint32_t> offsets;  // n + 1
  nlohmann::json config;
  std::vector<MdsColumn> columns;
};
StatusOr<MdsHeader> ReadMdsHeader(const StoredObject& object);

StatusOr<std::unique_ptr<ShardReader>> OpenMdsShard(std::shared_ptr<const StoredObject> object,
                                                    const ShardOptions& options);
StatusOr<std::unique_ptr<ShardWriter>> CreateMdsShard(const std::string& path,
                                                      const ShardWriterOptions& options);

/// JSON as Python's json.dumps(value, sort_keys=True) writes it.
std::string PythonJson(const nlohmann::json& value);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_MDS_INTERNAL_H_

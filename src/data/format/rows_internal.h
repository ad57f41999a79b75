// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_ROWS_INTERNAL_H_
#define AIT_DATA_FORMAT_ROWS_INTERNAL_H_

// Arrays with an equal first dimension as samples: row i of each of them is a field of sample i.
// npy, npz, idx and safetensors are such arrays.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/status.h"
#include "ait/data/format/shard.h"
#include "data/format/format_util_internal.h"

namespace ait::inline v0 {
namespace internal {

/// An array of a file.
struct StoredArray {
  std::string name;
  NumberType type;
  std::vector<std::int64_t> shape;  // of the whole array; without dimensions it is one row
  std::shared_ptr<const StoredObject> object;
  std::int64_t offset_bytes = 0;  // of its first number, which lies in the object with the others
};

/// The shard of these arrays, at least one. A record of one array is a row where it lies. With
/// several, the records are those of an object that shows row i of every array, then row i + 1, and
/// reads them together; `object` is what it is a view of.
/// **Errors.** InvalidArgument: first dimensions that differ, rows without numbers or larger than
/// `max_record_bytes`. DataLoss: an array lies beyond the end of its object.
StatusOr<std::unique_ptr<ShardReader>> ShardOfRows(std::string_view format,
                                                   std::shared_ptr<const StoredObject> object,
                                                   std::vector<StoredArray> arrays,
                                                   const ShardOptions& options);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_ROWS_INTERNAL_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_ARROW_PLUGIN_INTERNAL_H_
#define AIT_DATA_FORMAT_ARROW_PLUGIN_INTERNAL_H_

// Between ait::data and the plug-in that links Apache Arrow: a table, turned from columns into rows.
//
// The library of Arrow is large, and few programs read its files. So it is linked by a shared
// object of its own, libait_arrow.so, which is opened when the first such file is. Both sides are
// built together; the interface is one C++ function without a mangled name.
//
// A row is its fields one after the other. Each is: u64 bytes of the value, or kNull; for an array
// then i64 dimensions and as many i64 sizes; the value; zeros up to a multiple of 8.

#include <cstdint>
#include <string>
#include <vector>

#include "ait/base/dtype.h"
#include "ait/base/status.h"
#include "ait/data/sample.h"
#include "ait/data/storage/storage.h"

namespace ait::inline v0 {
namespace internal {

struct TableColumn {
  std::string name;  // of a field of a struct: "image.bytes"
  FieldKind kind = FieldKind::kBytes;
  DType dtype = DType::kUInt8;
};

struct UnpackedTable {
  static constexpr std::uint64_t kNull = ~std::uint64_t{0};

  std::vector<TableColumn> columns;
  ByteView rows;
  std::vector<std::int64_t> row_begins;  // one more than there are rows
};

/// Reads a whole table. `kind`: "parquet", "arrow" (file) or "arrow-stream".
/// **Errors.** Unimplemented: a type of a column that no field can hold, by name; DataLoss: damaged;
/// InvalidArgument: rows of more than `limit_bytes`; those of the object.
using UnpackTableFunction = void (*)(const StoredObject& object, const char* kind,
                                     std::int64_t limit_bytes, UnpackedTable& table,
                                     Status& status);
inline constexpr char kUnpackTableName[] = "ait_arrow_unpack_table_v0";

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_ARROW_PLUGIN_INTERNAL_H_

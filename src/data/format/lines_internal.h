// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_LINES_INTERNAL_H_
#define AIT_DATA_FORMAT_LINES_INTERNAL_H_

// Files of lines: where each begins, found by one scan of the file.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/status.h"
#include "ait/data/format/shard.h"

namespace ait::inline v0 {
namespace internal {

/// What ends a record, and which are left out.
struct LineRules {
  bool quotes_hide_line_ends = false;  // between two '"', as in CSV
  bool skips_empty = false;
};

/// Records of a file: without the byte-order mark, "\n" or "\r\n" at their ends.
/// **Errors.** DataLoss: a quote is open at the end; InvalidArgument: a record is larger than
/// `max_record_bytes`; those of the object.
StatusOr<std::vector<RecordExtent>> FindLines(const StoredObject& object, LineRules rules,
                                              std::int64_t max_record_bytes);

/// The fields of a record of CSV (RFC 4180) in `record`, as they are if they have no quotes inside,
/// else as copies. **Errors.** InvalidArgument: a quote where none may stand.
StatusOr<std::vector<ByteView>> SplitCsv(const ByteView& record);

/// The members of a JSON object as fields: texts; numbers and booleans as arrays without
/// dimensions; lists of them, also of lists of equal length, as arrays; anything else as JSON text,
/// as it stands in the record. A null is no field. Numbers are int64, or float64 if one of them has a fraction or exponent.
/// **Errors.** InvalidArgument: no JSON object, a repeated name, a number that int64 cannot hold.
Status DecodeJsonLine(const ByteView& record, Sample& sample);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_LINES_INTERNAL_H_

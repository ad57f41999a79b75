// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_NPY_HEADER_INTERNAL_H_
#define AIT_DATA_FORMAT_NPY_HEADER_INTERNAL_H_

// The header of an npy file: read strictly by a tiny grammar, never evaluated, and written as numpy
// writes it.
//
//   "\x93NUMPY" | u8 major 1, 2 or 3 | u8 minor 0 | u16 (v1) or u32 length, little-endian |
//   {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), } and spaces, '\n' at the end
// Source: numpy/lib/format.py.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/status.h"
#include "ait/data/storage/storage.h"
#include "data/format/rows_internal.h"

namespace ait::inline v0 {
namespace internal {

struct NpyHeader {
  NumberType type;
  std::vector<std::int64_t> shape;
  std::int64_t header_bytes = 0;  // where the numbers begin
};

/// Reads the text of a header, from '{' to '\n'. **Errors.** DataLoss: it is not as above;
/// Unimplemented: objects (pickle), text, structures, complex numbers, Fortran order.
StatusOr<NpyHeader> ParseNpyDictionary(std::string_view text);

/// The array of a whole npy file. **Errors.** Those above; DataLoss: the size is not what the
/// header says.
StatusOr<StoredArray> OpenNpyArray(std::shared_ptr<const StoredObject> object, std::string name);

/// A whole header, magic included. Its size depends on dtype and row only, not on the first number
/// of `shape`, so that a file that grows can replace it.
std::string FormatNpyHeader(DType dtype, const std::vector<std::int64_t>& shape);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_NPY_HEADER_INTERNAL_H_

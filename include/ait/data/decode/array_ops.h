// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_DECODE_ARRAY_OPS_H_
#define AIT_DATA_DECODE_ARRAY_OPS_H_

// Arrays of numbers to other arrays: another type, one-hot, padded, several in one.
//
// Pure functions of fields; the transforms of "ait/data/decode/field_transforms.h" apply them to
// samples, a loader's collation to batches.
//
//   AIT_ASSIGN_OR_RETURN(SampleField wide, ConvertArray(tokens, DType::kInt64));
//   AIT_ASSIGN_OR_RETURN(PaddedStack batch, StackPadded(fields, {.multiple = 8}));
//   // batch.values: (fields, longest), batch.mask: 1 where a number is one of the fields'

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "ait/base/dtype.h"
#include "ait/base/status.h"
#include "ait/data/sample.h"

namespace ait::inline v0 {

/// OK if `field` is an array whose bytes are those of its dtype and shape. **Errors.**
/// InvalidArgument that names it.
Status CheckArray(const SampleField& field);

/// The same numbers as another type. Floating point is cut towards zero to become an integer, and
/// rounded to nearest to become a narrower floating point; anything but 0 is true.
/// **Errors.** InvalidArgument if it is no array, or a number (also NaN) has no place in an integer
/// type.
StatusOr<SampleField> ConvertArray(const SampleField& array, DType dtype);

/// Appends a dimension of `classes` numbers, 0 but at the class. Classes are integers.
/// **Errors.** InvalidArgument if a number is below 0 or not below `classes`.
StatusOr<SampleField> OneHotArray(const SampleField& array, std::int64_t classes,
                                  DType dtype = DType::kFloat32);

/// What to do with arrays that are longer than asked.
enum class TooLong : std::uint8_t {
  kRefuse,  // InvalidArgument
  kCut,     // keep the beginning
};

struct PadOptions {
  int dimension = 0;                        // that is padded at its end
  std::optional<std::int64_t> length = {};  // nullopt: as long as it is (the longest of several)
  std::int64_t multiple = 1;                // then up to a multiple of this
  double value = 0;                         // what is put there, converted to the dtype
  TooLong too_long = TooLong::kRefuse;      // of arrays beyond `length`
};

/// **Errors.** InvalidArgument if there is no such dimension, `value` has no place in the dtype,
/// or it is too long.
StatusOr<SampleField> PadArray(const SampleField& array, const PadOptions& options);

struct PaddedStack {
  SampleField values;                 // (count, …), each padded to the longest
  SampleField mask;                   // bool, (count, padded dimension): 1 where not padding
  std::vector<std::int64_t> lengths;  // before padding, after cutting
};

/// Several arrays of one dtype, whose shapes differ in the padded dimension only, as one; named as
/// the first. **Errors.** InvalidArgument if there are none or they do not fit, with the number of
/// the first that does not.
StatusOr<PaddedStack> StackPadded(std::span<const SampleField* const> arrays,
                                  const PadOptions& options);

}  // namespace ait::inline v0

#endif  // AIT_DATA_DECODE_ARRAY_OPS_H_

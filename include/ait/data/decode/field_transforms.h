// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_DECODE_FIELD_TRANSFORMS_H_
#define AIT_DATA_DECODE_FIELD_TRANSFORMS_H_

// Transforms of fields that are not images: labels, numbers, names.
//
//   auto label = Chain({ParseInteger({.field = "cls", .output = "label", .end = 10}),
//                       OneHot({.field = "label", .classes = 10}),
//                       Select({"image", "label"})});
//
// `output` is the name that the result has; empty: the name of what it replaces. The field that it
// was made from goes. A sample without the field is a bad sample: InvalidArgument names those that
// it has. The transforms are pure functions of the sample and draw no random numbers.

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "ait/base/dtype.h"
#include "ait/data/decode/array_ops.h"
#include "ait/data/decode/transform.h"

namespace ait::inline v0 {

/// Text such as "7\n" to one number: decimal, with blanks around it.
struct ParseIntegerOptions {
  std::string field = "cls";
  std::string output = {};
  DType dtype = DType::kInt64;
  std::int64_t begin = 0;  // begin ≤ number < end, else it is a bad sample
  std::int64_t end = std::numeric_limits<std::int64_t>::max();
};
Transform ParseInteger(ParseIntegerOptions options);

struct OneHotOptions {
  std::string field;
  std::string output = {};
  std::int64_t classes = 0;
  DType dtype = DType::kFloat32;
};
/// As `OneHotArray`.
Transform OneHot(OneHotOptions options);

struct PadFieldOptions {
  std::string field;
  std::string output = {};
  PadOptions pad = {};
};
/// As `PadArray`.
Transform Pad(PadFieldOptions options);

struct ConvertTypeOptions {
  std::string field;
  std::string output = {};
  DType dtype = DType::kFloat32;
};
/// As `ConvertArray`.
Transform ConvertType(ConvertTypeOptions options);

/// The field `from` is called `to`; a field that is called so already is replaced.
Transform Rename(std::string from, std::string to);

/// Keeps these fields, in this order; each must be there.
Transform Select(std::vector<std::string> fields);

/// Removes these fields where they are there.
Transform Drop(std::vector<std::string> fields);

}  // namespace ait::inline v0

#endif  // AIT_DATA_DECODE_FIELD_TRANSFORMS_H_

// SPDX-License-Identifier: Apache-2.0
#include "ait/base/dtype.h"

namespace ait::inline v0 {
namespace {

constexpr std::string_view kNames[kDTypeCount] = {"uint8",   "int8",    "int16",    "int32",
                                                  "int64",   "float16", "bfloat16", "float32",
                                                  "float64", "bool",    "uint16",   "uint32"};

}  // namespace

std::string_view Name(DType dtype) { return kNames[static_cast<int>(dtype)]; }

std::optional<DType> DTypeFromName(std::string_view name) {
  for (int i = 0; i < kDTypeCount; ++i) {
    if (kNames[i] == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

}  // namespace ait::inline v0

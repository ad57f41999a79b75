// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_SAFETENSORS_HEADER_INTERNAL_H_
#define AIT_DATA_FORMAT_SAFETENSORS_HEADER_INTERNAL_H_

// The JSON header of a safetensors file: read, checked and written, without touching a file.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/status.h"
#include "ait/data/format/safetensors_header.h"

namespace ait::inline v0::internal {

struct SafetensorsHeader {
  std::vector<TensorInfo> tensors;  // ordered by their place in the data
  SafetensorsMetadata metadata;
};

/// Reads a header and checks it against `data_bytes`, the number of bytes that follow it: every
/// dtype known, sizes that fit the shapes, no repeated key, no hole, no overlap, nothing left over.
StatusOr<SafetensorsHeader> ParseSafetensorsHeader(std::string_view json, std::int64_t data_bytes);

/// Bytes of a tensor of that shape. InvalidArgument: a size is negative or the product overflows.
StatusOr<Bytes> BytesOfShape(DType dtype, const std::vector<std::int64_t>& shape);

/// Sorts `header.tensors` as the reference library does (dtype, then name), gives each its place
/// and writes the JSON, padded with spaces to a multiple of 8 bytes.
StatusOr<std::string> FormatSafetensorsHeader(SafetensorsHeader& header);

/// "F32 [2, 3]": dtype and shape as messages show them.
std::string DescribeTensor(DType dtype, const std::vector<std::int64_t>& shape);

}  // namespace ait::inline v0::internal

#endif  // AIT_DATA_FORMAT_SAFETENSORS_HEADER_INTERNAL_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_SAFETENSORS_HEADER_H_
#define AIT_DATA_FORMAT_SAFETENSORS_HEADER_H_

// What the header of a safetensors file says of its tensors.
//
// "ait/checkpoint/safetensors.h" reads and writes such files; OpenShard of "formats.h" reads one as
// data, where row i of every tensor is a field of sample i.
//
//   for (const TensorInfo& info : file.tensors()) total += info.bytes().value();

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ait/base/dtype.h"
#include "ait/base/types.h"

namespace ait::inline v0 {

/// Longest header the format allows, in bytes.
inline constexpr std::int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

/// Free text of a file: the header's `__metadata__`.
using SafetensorsMetadata = std::map<std::string, std::string>;

/// What a file says of one tensor. The elements are row-major and little-endian.
struct TensorInfo {
  std::string name;
  DType dtype = DType::kFloat32;
  std::vector<std::int64_t> shape;  // empty for a scalar; a size may be 0
  std::int64_t begin_bytes = 0;     // from the start of the data
  std::int64_t end_bytes = 0;

  Bytes bytes() const { return Bytes(end_bytes - begin_bytes); }
};

}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_SAFETENSORS_HEADER_H_

// SPDX-License-Identifier: Apache-2.0
#include "optim/blockwise_state.h"

#include "ait/base/types.h"

namespace ait::inline v0::internal {

std::vector<StateArray> ArraysOf(const std::vector<std::string>& moments, StateFormat format) {
  std::vector<StateArray> arrays = Float32Arrays(moments);
  if (format == StateFormat::kFloat32) return arrays;
  const auto large = [](const ParameterSegment& p) { return p.size() >= kLeastElements8bit; };
  const auto small = [](const ParameterSegment& p) { return p.size() < kLeastElements8bit; };
  for (StateArray& array : arrays) array.of = small;
  for (const std::string& moment : moments) {
    arrays.push_back({.name = moment, .dtype = DType::kUInt8, .of = large});
    arrays.push_back({.name = StrCat(moment, "_absmax"), .block = kBlockElements8bit, .of = large});
  }
  return arrays;
}

std::vector<std::string> StateNames(std::vector<std::string> moments, StateFormat format) {
  if (format == StateFormat::kFloat32) return moments;
  std::vector<std::string> names;
  for (std::string& moment : moments) {
    names.push_back(StrCat(moment, "_absmax"));
    names.insert(names.end() - 1, std::move(moment));
  }
  return names;
}

std::string_view Describe(StateFormat format) {
  return format == StateFormat::kFloat32 ? "" : " state blockwise8bit";
}

}  // namespace ait::inline v0::internal

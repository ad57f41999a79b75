// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_JSON_INTERNAL_H_
#define AIT_DATA_JSON_INTERNAL_H_

// Strict reading of JSON objects without exceptions: a field is there, of its type and in its
// range, or the reader remembers the first complaint.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/status.h"
#include "nlohmann/json.hpp"

namespace ait::inline v0 {
namespace internal {

/// Fixed width, so that texts compare and align.
std::string HexDigits(std::uint64_t value, int digits);

/// An error if arrays and objects lie in each other deeper than that: what walks a value recurses.
Status CheckJsonDepth(std::string_view text, int most = 64);

class JsonReader {
 public:
  /// 0 … 2^62.
  std::int64_t Integer(const nlohmann::json& object, const char* key);
  std::string Text(const nlohmann::json& object, const char* key);
  /// Text of exactly `digits` hexadecimal digits.
  std::uint64_t Hex(const nlohmann::json& object, const char* key, int digits);
  /// The elements of an array.
  std::vector<nlohmann::json> Array(const nlohmann::json& object, const char* key);

  /// Empty if all was well, else such as `"tokens" is not an integer of 0 to 2^62`.
  const std::string& complaint() const { return complaint_; }

 private:
  void Complain(const char* key, std::string_view what);
  std::string complaint_;
};

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_JSON_INTERNAL_H_

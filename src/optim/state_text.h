// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OPTIM_STATE_TEXT_H_
#define AIT_OPTIM_STATE_TEXT_H_

// A handful of numbers as one line of text: "loss_scaler 1 scale 65536 clean_steps 12 …". The kind
// and the version of its meaning stand first; numbers come back with the same bits.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ait/base/status.h"

namespace ait::inline v0::internal {

class StateWriter {
 public:
  StateWriter(std::string_view kind, int version) : text_(StrCat(kind, " ", version)) {}

  StateWriter& Add(std::string_view name, double value) {
    text_ += StrCat(" ", name, " ", value);
    return *this;
  }
  StateWriter& Add(std::string_view name, std::int64_t value) {
    text_ += StrCat(" ", name, " ", value);
    return *this;
  }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
};

class StateReader {
 public:
  /// **Errors.** DataLoss: no such line; FailedPrecondition: another version, both are named.
  static StatusOr<StateReader> Parse(std::string_view kind, int version, std::string_view line);

  /// **Errors.** DataLoss that names the field: it is missing or is no number.
  Status Read(std::string_view name, double& value) const;
  Status Read(std::string_view name, std::int64_t& value) const;

 private:
  StateReader() = default;
  template <typename Number>
  Status ReadNumber(std::string_view name, Number& value) const;

  std::string kind_;
  std::vector<std::pair<std::string, std::string>> fields_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_OPTIM_STATE_TEXT_H_

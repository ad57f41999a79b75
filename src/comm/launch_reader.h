// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_LAUNCH_READER_H_
#define AIT_COMM_LAUNCH_READER_H_

// Variables of a launch by name, their numbers, and all that is wrong with them at once.

#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/env.h"
#include "ait/base/status.h"

namespace ait::inline v0::internal {

inline constexpr int kMaxInt = std::numeric_limits<int>::max();

/// A field of Env with its name; of an Env that outlives it.
class Variable {
 public:
  Variable() = default;  // no such variable: never set
  Variable(const char* name, const Env::Value& value) : name_(name), value_(&value) {}

  explicit operator bool() const { return value_ != nullptr && value_->has_value(); }
  const char* name() const { return name_; }
  /// Only if it is set.
  const std::string& text() const { return **value_; }

 private:
  const char* name_ = "";
  const Env::Value* value_ = nullptr;
};

/// The first that is set, else the first.
inline Variable FirstOf(const Variable& a, const Variable& b) { return a || !b ? a : b; }

class LaunchReader {
 public:
  /// The number of a variable; nullopt if it is unset or wrong, which is noted.
  std::optional<int> Number(const Variable& variable, int least, int most);

  template <typename... Parts>
  void Problem(const Parts&... parts) {
    problems_.push_back(StrCat(parts...));
  }
  bool ok() const { return problems_.empty(); }

  /// OK, or all problems with all values.
  Status Result(const Env& env) const;

 private:
  std::vector<std::string> problems_;
};

/// "A=1, B=2" of those that are set.
std::string Show(const std::vector<Variable>& variables);

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_LAUNCH_READER_H_

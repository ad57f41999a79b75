// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_SUPPORT_STATUS_MATCHERS_H_
#define AIT_TESTS_SUPPORT_STATUS_MATCHERS_H_

// Matchers for Status and StatusOr, and the two assertions that tests use most.
//
//   EXPECT_OK(Save(path));
//   ASSERT_OK_AND_ASSIGN(auto file, Open(path));
//   EXPECT_THAT(Open("gone"), StatusIs(StatusCode::kNotFound, HasSubstr("gone")));

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "ait/base/status.h"

namespace ait::testing {

inline const Status& StatusOf(const Status& status) { return status; }
template <typename T>
const Status& StatusOf(const StatusOr<T>& result) {
  return result.status();
}

MATCHER(IsOk, "is ok") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).ok();
}

MATCHER_P(StatusIs, code, "has code " + CodeName(code)) {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).code() == code;
}

MATCHER_P2(StatusIs, code, message, "has code " + CodeName(code) + " and a message that matches") {
  *result_listener << StatusOf(arg).ToString();
  return StatusOf(arg).code() == code &&
         ::testing::ExplainMatchResult(message, Message(StatusOf(arg)), result_listener);
}

}  // namespace ait::testing

#define EXPECT_OK(expression) EXPECT_THAT(expression, ::ait::testing::IsOk())
#define ASSERT_OK(expression) ASSERT_THAT(expression, ::ait::testing::IsOk())
#define ASSERT_OK_AND_ASSIGN(target, expression) \
  AIT_TESTING_ASSERT_OK_AND_ASSIGN(AIT_INTERNAL_CONCAT(status_or_, __LINE__), target, expression)
#define AIT_TESTING_ASSERT_OK_AND_ASSIGN(result, target, expression) \
  auto result = (expression);                                        \
  ASSERT_TRUE(result.ok()) << result.status().ToString();            \
  target = *std::move(result)

#endif  // AIT_TESTS_SUPPORT_STATUS_MATCHERS_H_

// SPDX-License-Identifier: Apache-2.0
#include "ait/data/storage/retry.h"

#include <gtest/gtest.h>

#include "support/status_matchers.h"

namespace ait {
namespace {

using std::chrono::milliseconds;

TEST(RetryTest, WaitsTwiceAsLongEachTimeUpToTheLongest) {
  const RetryOptions options = {.first_wait = milliseconds(100), .max_wait = milliseconds(1000)};
  const int whole[] = {100, 200, 400, 800, 1000, 1000};
  for (int tries = 1; tries <= 6; ++tries) {
    EXPECT_EQ(WaitAfter(options, tries, 0.0).count(), whole[tries - 1] / 2) << tries;
    EXPECT_EQ(WaitAfter(options, tries, 0.5).count(), whole[tries - 1] * 3 / 4) << tries;
    EXPECT_LE(WaitAfter(options, tries, 0.999999).count(), whole[tries - 1]) << tries;
  }
  EXPECT_EQ(WaitAfter(options, 1'000'000, 0.0).count(), 500);
}

TEST(RetryTest, NeverWaitsNothingAtAll) {
  EXPECT_EQ(WaitAfter({.first_wait = milliseconds(1), .max_wait = milliseconds(1)}, 1, 0.0).count(),
            1);
}

TEST(RetryTest, SomeAnswersSayLater) {
  for (const int status : {408, 429, 500, 502, 503, 504})
    EXPECT_TRUE(IsTransientHttpStatus(status));
  for (const int status : {200, 206, 301, 400, 401, 403, 404, 412, 416, 501, 505}) {
    EXPECT_FALSE(IsTransientHttpStatus(status)) << status;
  }
}

TEST(RetryTest, RefusesOptionsOutOfRange) {
  EXPECT_OK(Check(RetryOptions{}));
  for (const RetryOptions& options :
       {RetryOptions{.max_tries = 0}, RetryOptions{.max_tries = 101},
        RetryOptions{.first_wait = milliseconds(0)},
        RetryOptions{.first_wait = milliseconds(2), .max_wait = milliseconds(1)},
        RetryOptions{.deadline = milliseconds(0)}}) {
    EXPECT_EQ(Check(options).code(), StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace ait

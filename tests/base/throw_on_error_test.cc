// SPDX-License-Identifier: Apache-2.0
#include "ait/base/throw_on_error.h"

#include <gtest/gtest.h>

#include <memory>

namespace ait {
namespace {

TEST(ThrowOnError, PassesValuesThrough) {
  EXPECT_NO_THROW(ThrowOnError(OkStatus()));
  EXPECT_EQ(*ThrowOnError(StatusOr<std::unique_ptr<int>>(std::make_unique<int>(7))), 7);
}

TEST(ThrowOnError, ThrowsTheStatus) {
  try {
    ThrowOnError(StatusOr<int>(NotFoundError("corpus.bin")));
    FAIL() << "no exception";
  } catch (const StatusException& error) {
    EXPECT_EQ(error.status().code(), StatusCode::kNotFound);
    EXPECT_STREQ(error.what(), "NOT_FOUND: corpus.bin");
  }
}

}  // namespace
}  // namespace ait

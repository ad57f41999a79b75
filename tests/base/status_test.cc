// SPDX-License-Identifier: Apache-2.0
#include "ait/base/status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <memory>
#include <string>

#include "ait/base/types.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;

TEST(StatusFactory, JoinsTextAndNumbers) {
  const std::string path = "a.bin";
  const Status status = DataLossError("shard ", path, ": rank ", Rank(3), ", offset ",
                                      std::int64_t{-5}, ' ', 0.5, std::string_view(" end "), true);
  EXPECT_THAT(status,
              StatusIs(StatusCode::kDataLoss, "shard a.bin: rank 3, offset -5 0.5 end true"));
}

TEST(StatusFactory, GivesTheCodeOfItsName) {
  EXPECT_THAT(UnavailableError("x"), StatusIs(StatusCode::kUnavailable));
  EXPECT_THAT(ResourceExhaustedError("x"), StatusIs(StatusCode::kResourceExhausted));
  EXPECT_EQ(CodeName(StatusCode::kAborted), "ABORTED");
}

TEST(ErrnoError, ChoosesTheCodeAndKeepsTheText) {
  EXPECT_THAT(ErrnoError(ENOSPC, "write ", "a.bin"),
              StatusIs(StatusCode::kResourceExhausted, "write a.bin: No space left on device"));
  EXPECT_THAT(ErrnoError(ENOENT, "open"), StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(ErrnoError(EACCES, "open"), StatusIs(StatusCode::kPermissionDenied));
  EXPECT_THAT(ErrnoError(ECONNREFUSED, "connect"), StatusIs(StatusCode::kUnavailable));
}

TEST(Annotate, PutsContextInFrontAndKeepsCodeAndPayload) {
  Status status = NotFoundError("no such file");
  status.SetPayload("ait/rank", absl::Cord("3"));
  const Status annotated = Annotate(status, "shard 2");
  EXPECT_THAT(annotated, StatusIs(StatusCode::kNotFound, "shard 2: no such file"));
  EXPECT_EQ(annotated.GetPayload("ait/rank"), absl::Cord("3"));
  EXPECT_OK(Annotate(OkStatus(), "context"));
}

Status ReturnIfError(const Status& status, bool* passed) {
  AIT_RETURN_IF_ERROR(status);
  *passed = true;
  return OkStatus();
}

StatusOr<int> HalfOf(StatusOr<std::unique_ptr<int>> input) {
  AIT_ASSIGN_OR_RETURN(const std::unique_ptr<int> value, std::move(input));
  AIT_RETURN_IF_ERROR(*value % 2 == 0 ? OkStatus() : InvalidArgumentError(*value, " is odd"));
  return *value / 2;
}

TEST(ReturnIfError, ReturnsOnlyErrors) {
  bool passed = false;
  EXPECT_THAT(ReturnIfError(AbortedError("stop"), &passed), StatusIs(StatusCode::kAborted));
  EXPECT_FALSE(passed);
  EXPECT_OK(ReturnIfError(OkStatus(), &passed));
  EXPECT_TRUE(passed);
}

TEST(AssignOrReturn, MovesTheValueOrReturnsTheError) {
  ASSERT_OK_AND_ASSIGN(const int half, HalfOf(std::make_unique<int>(8)));
  EXPECT_EQ(half, 4);
  EXPECT_THAT(HalfOf(std::make_unique<int>(7)), StatusIs(StatusCode::kInvalidArgument, "7 is odd"));
  EXPECT_THAT(HalfOf(NotFoundError("gone")), StatusIs(StatusCode::kNotFound, "gone"));
}

}  // namespace
}  // namespace ait

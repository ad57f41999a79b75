// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/offload.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/status_matchers.h"

namespace ait {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

TEST(StateOffload, IsOffUntilThereIsADirectory) {
  EXPECT_FALSE(StateOffload{}.enabled());
  EXPECT_TRUE(StateOffload{.directory = "/tmp"}.enabled());
}

TEST(StateOffload, RefusesSizesOutsideOfItsLimits) {
  EXPECT_OK(StateOffload{}.Validate());
  EXPECT_OK((StateOffload{.chunk = KiB(64), .chunks = 3}.Validate()));
  EXPECT_OK((StateOffload{.chunk = MiB(256), .chunks = 64}.Validate()));
  EXPECT_THAT((StateOffload{.chunk = MiB(257)}.Validate()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("chunk is 269484032 bytes")));
  EXPECT_THAT((StateOffload{.chunks = 2}.Validate()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("chunks is 2")));
}

}  // namespace
}  // namespace ait

// SPDX-License-Identifier: Apache-2.0
#include "ait/data/format/formats.h"

#include <gtest/gtest.h>

#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;

TEST(FormatsTest, BytesOfNoKnownFormatAreRefused) {
  const auto object = MemoryObject("noise", ByteView::Copy("no magic, no known name"));
  EXPECT_THAT(OpenShard(object), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(OpenShard(object, {.format = "no-such-format"}),
              StatusIs(StatusCode::kInvalidArgument));
}

TEST(FormatsTest, AFormatThatIsNotKnownIsNotWritten) {
  EXPECT_THAT(CreateShard("/nowhere/x", {.format = "no-such-format"}),
              StatusIs(StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace ait

// SPDX-License-Identifier: Apache-2.0
#include "ait/data/decode/nvjpeg.h"

#include <gtest/gtest.h>

#include "support/status_matchers.h"

namespace ait {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

TEST(NvJpegTest, WithoutAGpuItSaysWhatIsMissing) {
  const auto none = DeviceRuntime::Open({.library = "/nowhere/libcudart.so"});
  EXPECT_THAT(NvJpeg::Open(none, Device(0)),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("no nvJPEG: ")));
}

}  // namespace
}  // namespace ait

// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/offload.h"

#include <gtest/gtest.h>

namespace ait {
namespace {

TEST(StateOffload, IsOffUntilThereIsADirectory) {
  EXPECT_FALSE(StateOffload{}.enabled());
  EXPECT_TRUE(StateOffload{.directory = "/tmp"}.enabled());
}

}  // namespace
}  // namespace ait

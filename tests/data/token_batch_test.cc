// SPDX-License-Identifier: Apache-2.0
#include "ait/data/token_batch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ait {
namespace {

using ::testing::ElementsAre;

TEST(TokenBatch, TargetsAreTheInputsOneTokenLater) {
  const TokenBatch batch = {.sequence_length = 3,
                            .tokens = {10, 11, 12, 13, 20, 21, 22, 23},
                            .sample_ids = {5, 2},
                            .global_rows = 7};
  EXPECT_EQ(batch.rows(), 2);
  EXPECT_EQ(batch.token_count(), 6);
  EXPECT_THAT(batch.inputs(0), ElementsAre(10, 11, 12));
  EXPECT_THAT(batch.targets(0), ElementsAre(11, 12, 13));
  EXPECT_THAT(batch.inputs(1), ElementsAre(20, 21, 22));
  EXPECT_THAT(batch.targets(1), ElementsAre(21, 22, 23));
  EXPECT_EQ(batch.inputs(1).data(), batch.tokens.data() + 4) << "a view, not a copy";
}

TEST(TokenBatch, MayBeEmpty) {
  const TokenBatch batch = {.sequence_length = 3};
  EXPECT_EQ(batch.rows(), 0);
  EXPECT_EQ(batch.token_count(), 0);
}

}  // namespace
}  // namespace ait

// SPDX-License-Identifier: Apache-2.0
#include "comm/operation_compare.h"

#include <gtest/gtest.h>

#include "support/status_matchers.h"

namespace ait {
namespace {

using internal::CompareAllToAllCounts;
using internal::CompareSignatures;
using internal::RankList;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::StatusIs;

TEST(RankList, IsReadable) {
  EXPECT_EQ(RankList(std::vector<int>{3}), "rank 3");
  EXPECT_EQ(RankList(std::vector<int>{1, 3, 4}), "ranks 1, 3, 4");
}

TEST(CompareSignatures, EqualOnesAreOk) {
  const std::vector<std::string> descriptions(3, "barrier");
  EXPECT_OK(CompareSignatures(std::vector<std::uint64_t>{7, 7, 7}, descriptions));
}

TEST(CompareSignatures, TellsWhoAsksForWhatEachThingOnce) {
  const std::vector<std::string> descriptions = {"barrier", "broadcast", "barrier", "gather"};
  EXPECT_THAT(
      CompareSignatures(std::vector<std::uint64_t>{1, 2, 1, 3}, descriptions),
      StatusIs(StatusCode::kInvalidArgument,
               HasSubstr("different operations: ranks 0, 2: barrier; rank 1: broadcast; rank 3: "
                         "gather")));
}

TEST(CompareAllToAllCounts, NamesThePairThatDoesNotFit) {
  using Counts = std::vector<std::vector<std::int64_t>>;
  EXPECT_OK(CompareAllToAllCounts(Counts{{1, 2}, {3, 4}}, Counts{{1, 3}, {2, 4}}));
  EXPECT_THAT(CompareAllToAllCounts(Counts{{1, 2}, {3, 4}}, Counts{{1, 5}, {2, 4}}),
              StatusIs(StatusCode::kInvalidArgument,
                       HasSubstr("rank 1 sends 3 elements to rank 0, which expects 5")));
}

}  // namespace
}  // namespace ait

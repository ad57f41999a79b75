// SPDX-License-Identifier: Apache-2.0
#include "ait/topology/id_set.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::testing::HasSubstr;

TEST(IdSet, ParsesTheListSyntaxOfTheKernel) {
  EXPECT_EQ(IdSet::Parse("0-3,8").value(), (IdSet{0, 1, 2, 3, 8}));
  EXPECT_EQ(IdSet::Parse(" 5\n").value(), IdSet{5});
  EXPECT_EQ(IdSet::Parse("").value(), IdSet());
  EXPECT_EQ(IdSet::Parse("\n").value(), IdSet());
  EXPECT_EQ(IdSet::Parse("7,1-2,2-3,1").value(), (IdSet{1, 2, 3, 7})) << "any order, repetition";
  EXPECT_EQ(IdSet::Parse("65535").value(), IdSet{65535});
}

TEST(IdSet, PrintsTheShortestList) {
  EXPECT_EQ((IdSet{8, 0, 1, 2, 3}).ToString(), "0-3,8");
  EXPECT_EQ((IdSet{1, 2}).ToString(), "1-2");
  EXPECT_EQ((IdSet{4}).ToString(), "4");
  EXPECT_EQ(IdSet().ToString(), "");
}

TEST(IdSet, RefusesWhatIsNotAList) {
  for (const char* text : {"a", "1-", "-1", "3-1", "1,,2", "1,", "0x3", "1 2", "1-2-3", "65536",
                           "0-4000000000", "99999999999999999999", "+1", "1.5", "0-3:2"}) {
    EXPECT_THAT(IdSet::Parse(text), StatusIs(StatusCode::kInvalidArgument, HasSubstr("0-3,8")))
        << text;
  }
}

TEST(IdSet, LeavesOutIdsThatNoMachineHas) {
  EXPECT_EQ((IdSet{-1, 3, IdSet::kMaxId + 1}), IdSet{3});
  EXPECT_EQ(IdSet::Range(-2, 1), (IdSet{0, 1}));
  EXPECT_EQ(IdSet::Range(3, 2), IdSet());
}

TEST(IdSet, AgreesWithStdSetOnRandomSets) {
  std::mt19937 random(7);
  for (int trial = 0; trial < 200; ++trial) {
    std::set<int> expected[2];
    IdSet sets[2];
    for (int which = 0; which < 2; ++which) {
      for (unsigned i = random() % 40; i > 0; --i) {
        const int id = static_cast<int>(random() % 64);
        expected[which].insert(id);
        sets[which].Add(id);
      }
      EXPECT_EQ(std::vector<int>(sets[which].begin(), sets[which].end()),
                std::vector<int>(expected[which].begin(), expected[which].end()));
      EXPECT_EQ(IdSet::Parse(sets[which].ToString()).value(), sets[which]) << "round trip";
    }
    for (int id = 0; id < 64; ++id) {
      const bool a = expected[0].count(id) != 0;
      const bool b = expected[1].count(id) != 0;
      EXPECT_EQ(sets[0].contains(id), a);
      EXPECT_EQ((sets[0] | sets[1]).contains(id), a || b);
      EXPECT_EQ((sets[0] & sets[1]).contains(id), a && b);
      EXPECT_EQ((sets[0] - sets[1]).contains(id), a && !b);
    }
  }
}

}  // namespace
}  // namespace ait

// SPDX-License-Identifier: Apache-2.0
#include "comm/slurm_lists.h"

#include <string>
#include <vector>

#include "support/status_matchers.h"

namespace ait::internal {
namespace {

using ::ait::testing::StatusIs;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(ParseTasksPerNode, ReadsRepetitions) {
  EXPECT_THAT(*ParseTasksPerNode("4"), ElementsAre(4));
  EXPECT_THAT(*ParseTasksPerNode("2(x3),1"), ElementsAre(2, 2, 2, 1));
  EXPECT_THAT(*ParseTasksPerNode("1,2,3(x1)"), ElementsAre(1, 2, 3));
}

TEST(ParseTasksPerNode, RefusesAnythingElse) {
  for (const char* text : {"", "0", "-1", "2(", "2(x", "2(x)", "2(x0)", "2(x3", "2(x3)1", ",2",
                           "2,", "two", "2 ", "2(y3)", "99999999999", "1(x2000000)", "2(x-1)"}) {
    EXPECT_THAT(ParseTasksPerNode(text),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr(std::string("\"") + text + "\"")))
        << text;
  }
}

TEST(ParseNodeList, ExpandsBrackets) {
  EXPECT_THAT(*ParseNodeList("host"), ElementsAre("host"));
  EXPECT_THAT(*ParseNodeList("n[0-3,7],m2"), ElementsAre("n0", "n1", "n2", "n3", "n7", "m2"));
  EXPECT_THAT(*ParseNodeList("a,b"), ElementsAre("a", "b"));
  EXPECT_THAT(*ParseNodeList("n[07-10]"), ElementsAre("n07", "n08", "n09", "n10"));
  EXPECT_THAT(*ParseNodeList("r[1-2]n[0-1].lan"),
              ElementsAre("r1n0.lan", "r1n1.lan", "r2n0.lan", "r2n1.lan"));
}

TEST(ParseNodeList, RefusesAnythingElse) {
  for (const char* text :
       {"", ",a", "a,", "n[", "n[]", "n[1", "n]1[", "n[1-]", "n[-1]", "n[3-1]", "n[1,]", "n[a]",
        "n[[1]]", "n[0-99999999]", "n[0-999]m[0-9999]", "n[99999999999]"}) {
    EXPECT_THAT(ParseNodeList(text),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr(std::string("\"") + text + "\"")))
        << text;
  }
}

}  // namespace
}  // namespace ait::internal

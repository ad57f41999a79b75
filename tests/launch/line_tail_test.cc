// SPDX-License-Identifier: Apache-2.0
#include "launch/line_tail_internal.h"

#include <gtest/gtest.h>

#include <string>

namespace ait::internal {
namespace {

TEST(LineTail, KeepsTheLastLines) {
  LineTail tail;
  for (int i = 0; i < 1000; ++i) tail.Add("line " + std::to_string(i) + "\n");
  std::string expected;
  for (int i = 1000 - LineTail::kLines; i < 1000; ++i) {
    expected += "line " + std::to_string(i) + "\n";
  }
  EXPECT_EQ(tail.Lines(), expected);
}

TEST(LineTail, JoinsPiecesAndEndsAnUnfinishedLine) {
  LineTail tail;
  for (const char* piece : {"a", "b\n", "\n\n", "c"}) tail.Add(piece);
  EXPECT_EQ(tail.Lines(), "ab\nc\n");
}

TEST(LineTail, OfARedrawnLineTheLastStateCounts) {
  LineTail tail;
  tail.Add("\rstep 1\rstep 2\r\nwindows\r\n");
  EXPECT_EQ(tail.Lines(), "step 2\nwindows\n");
}

TEST(LineTail, IsBoundedAlsoWithoutNewlines) {
  LineTail tail;
  for (int i = 0; i < 100; ++i) tail.Add(std::string(1000, 'x'));
  EXPECT_LE(tail.Lines().size(), 2 * LineTail::kMaxBytes + 1);
  EXPECT_EQ(LineTail().Lines(), "");
}

}  // namespace
}  // namespace ait::internal

// SPDX-License-Identifier: Apache-2.0
#include "cli/console.h"

#include <gtest/gtest.h>

#include <string>

namespace ait::cli {
namespace {

constexpr RankStream kOutput = RankStream::kOutput;
constexpr RankStream kError = RankStream::kError;

// A console that writes into a string; what goes to standard error is in angle brackets.
struct Screen {
  explicit Screen(ConsoleOptions options = {}) : console(3, WithWrite(std::move(options))) {}
  ConsoleOptions WithWrite(ConsoleOptions options) {
    options.write = [this](RankStream stream, std::string_view piece) {
      text += stream == kOutput ? std::string(piece) : "<" + std::string(piece) + ">";
    };
    return options;
  }
  std::string text;
  Console console;
};

ConsoleOptions Terminal() { return {.output_is_terminal = true, .error_is_terminal = true}; }

TEST(Console, PutsTheRankBeforeEachLine) {
  Screen screen;
  screen.console.Write(Rank(1), kOutput, "one\ntwo\n");
  screen.console.Write(Rank(2), kError, "three\n");
  EXPECT_EQ(screen.text, "[1] one\n[1] two\n<[2] three\n>");
}

TEST(Console, JoinsPiecesOfALineAndNeverMixesRanks) {
  Screen screen;
  screen.console.Write(Rank(0), kOutput, "a");
  screen.console.Write(Rank(1), kOutput, "b");
  screen.console.Write(Rank(0), kError, "c");
  screen.console.Write(Rank(0), kOutput, "A\n");
  screen.console.Write(Rank(1), kOutput, "B\n");
  EXPECT_EQ(screen.text, "[0] aA\n[1] bB\n");
}

TEST(Console, EndsAnUnfinishedLineAtTheEndOfTheStream) {
  Screen screen;
  screen.console.Write(Rank(1), kOutput, "half");
  screen.console.Write(Rank(1), kOutput, "");
  screen.console.Write(Rank(2), kOutput, "");
  EXPECT_EQ(screen.text, "[1] half\n");
}

TEST(Console, KeepsCarriageReturnsInAFile) {
  Screen screen;
  screen.console.Write(Rank(0), kOutput, "\rstep 1");
  EXPECT_EQ(screen.text, "");
  screen.console.Write(Rank(0), kOutput, "\rstep 2\n");
  EXPECT_EQ(screen.text, "[0] \rstep 1\rstep 2\n");
}

TEST(Console, PassesARedrawnLineOfRankZeroOnAtOnce) {
  Screen screen(Terminal());
  screen.console.Write(Rank(0), kOutput, "\rstep 1");
  screen.console.Write(Rank(0), kOutput, "\rstep 2");
  screen.console.Write(Rank(0), kOutput, " of 9\n");
  EXPECT_EQ(screen.text, "\rstep 1\rstep 2 of 9\n");
  screen.console.Write(Rank(0), kOutput, "done\n");
  EXPECT_EQ(screen.text, "\rstep 1\rstep 2 of 9\n[0] done\n");
}

TEST(Console, TakesTheRedrawnLineAwayForOtherLines) {
  Screen screen(Terminal());
  screen.console.Write(Rank(0), kOutput, "\rstep 1");
  screen.text.clear();
  screen.console.Write(Rank(1), kOutput, "warning\n");
  EXPECT_EQ(screen.text, "\r\x1b[K[1] warning\n\rstep 1");
}

TEST(Console, AfterARedrawnLineWasTakenAwayLinesHaveTheirRankAgain) {
  Screen screen(Terminal());
  screen.console.Write(Rank(0), kError, "\rstep 1");
  screen.console.Write(Rank(0), kError, "\r\x1b[K");
  screen.text.clear();
  screen.console.Write(Rank(0), kError, "saved\n");
  EXPECT_EQ(screen.text, "<[0] saved\n>");
}

TEST(Console, OtherRanksCannotDrawOverTheirPrefix) {
  Screen screen(Terminal());
  screen.console.Write(Rank(1), kOutput, "\rstep 1\rstep 2\r\n");
  EXPECT_EQ(screen.text, "[1] step 2\n");
}

TEST(Console, BreaksALineThatNeverEnds) {
  Screen screen;
  for (int i = 0; i < 70; ++i) screen.console.Write(Rank(1), kOutput, std::string(1000, 'x'));
  EXPECT_EQ(screen.text.size(), 4u + 66'000 + 1);
}

TEST(Console, WithoutPrefixPassesAllOnAsItComes) {
  Screen screen({.prefix = false});
  screen.console.Write(Rank(0), kOutput, "ha");
  screen.console.Write(Rank(1), kError, "lf\n");
  screen.console.Write(Rank(1), kError, "");
  EXPECT_EQ(screen.text, "ha<lf\n>");
}

}  // namespace
}  // namespace ait::cli

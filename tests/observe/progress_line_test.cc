// SPDX-License-Identifier: Apache-2.0
#include "ait/observe/progress_line.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmath>
#include <string>
#include <vector>

namespace ait {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

StepMetrics Full() {
  return {.step = 120,
          .total_steps = 1000,
          .epoch = 0.314,
          .loss = 2.43121,
          .learning_rate = 3e-4,
          .gradient_norm = 0.9123,
          .tokens_per_second = 12345.4,
          .step_time = std::chrono::microseconds(83100),
          .exposed_communication = 0.032,
          .host_memory = Bytes(1288490189),
          .elapsed = seconds(10),
          .remaining = seconds(3683)};
}

TEST(FormatProgress, ShowsEveryField) {
  EXPECT_EQ(FormatProgress(Full()),
            "step 120/1000  epoch 0.31  loss 2.4312  lr 3.00e-04  norm 0.912  12,345 tokens/s  "
            "83.1 ms/step  comm 3.2%  mem 1.2 GiB  elapsed 0:10  left 1:01:23");
}

TEST(FormatProgress, WhatIsUnknownIsCalledUnknown) {
  EXPECT_EQ(FormatProgress({.step = 1}),
            "step 1  loss unknown  lr unknown  norm unknown  unknown tokens/s  unknown ms/step  "
            "comm unknown  mem unknown  elapsed unknown");
}

TEST(FormatProgress, WhatTheRunCannotKnowIsLeftOut) {
  StepMetrics metrics = Full();
  metrics.total_steps.reset();
  EXPECT_TRUE(FormatProgress(metrics).starts_with("step 120  epoch 0.31  loss 2.4312  "));
  metrics.epoch.reset();
  EXPECT_TRUE(FormatProgress(metrics).starts_with("step 120  loss 2.4312  "));
  metrics.remaining.reset();
  EXPECT_TRUE(FormatProgress(metrics).ends_with("  elapsed 0:10"));
}

TEST(FormatProgress, TheWaitForDataShowsWhereItIsMeasured) {
  StepMetrics metrics = Full();
  metrics.data_wait = 0.0125;
  EXPECT_TRUE(FormatProgress(metrics).ends_with("  elapsed 0:10  data 1.2%  left 1:01:23"));
}

TEST(FormatProgress, SkippedStepsShowOnceThereAreSome) {
  StepMetrics metrics = Full();
  metrics.skipped_steps = 3;
  metrics.loss = NAN;
  EXPECT_TRUE(FormatProgress(metrics).ends_with("  skipped 3"));
  EXPECT_NE(FormatProgress(metrics).find("loss nan"), std::string::npos);
}

TEST(FormatProgress, FitsAnyWidthAndLosesTheLeastImportantFirst) {
  const std::string full = FormatProgress(Full());
  std::string wider = full;
  for (int columns = static_cast<int>(full.size()); columns >= 1; --columns) {
    const std::string line = FormatProgress(Full(), columns);
    ASSERT_LE(line.size(), static_cast<std::size_t>(columns));
    ASSERT_LE(line.size(), wider.size());
    wider = line;
  }
  EXPECT_EQ(FormatProgress(Full(), static_cast<int>(full.size())), full);
  EXPECT_EQ(FormatProgress(Full(), 60),
            "step 120/1000  loss 2.4312  12,345 tokens/s  left 1:01:23");
  EXPECT_EQ(FormatProgress(Full(), 20), "step 120/1000  loss ");
}

/// Collects what a ProgressLine writes.
struct Screen {
  std::vector<std::string> writes;
  ManualClock clock;
  ProgressOptions Options(ProgressStyle style, int columns = 0) {
    return {.write = [this](std::string_view text) { writes.emplace_back(text); },
            .style = style,
            .columns = [columns] { return columns; },
            .interval = std::nullopt,
            .clock = &clock};
  }
};

TEST(ProgressLine, PlainWritesAWholeLineEveryFewSeconds) {
  Screen screen;
  ProgressLine progress(screen.Options(ProgressStyle::kPlain, 20));
  for (int step = 1; step <= 100; ++step) {
    progress.Update({.step = step});
    screen.clock.Advance(milliseconds(100));
  }
  progress.Clear();
  progress.Finish();
  ASSERT_EQ(screen.writes.size(), 3u);  // at 0 s, 5 s, and the last step at the end
  EXPECT_EQ(screen.writes[0], FormatProgress({.step = 1}) + "\n");  // never shortened
  EXPECT_EQ(screen.writes[1], FormatProgress({.step = 51}) + "\n");
  EXPECT_EQ(screen.writes[2], FormatProgress({.step = 100}) + "\n");
}

TEST(ProgressLine, RedrawsInPlaceWithinTheWidthAndEndsWithANewline) {
  Screen screen;
  ProgressLine progress(screen.Options(ProgressStyle::kRedrawn, 61));
  progress.Update(Full());
  progress.Update({.step = 121});  // too soon
  screen.clock.Advance(milliseconds(100));
  progress.Update({.step = 122, .loss = 1});
  progress.Finish();
  progress.Finish();
  ASSERT_EQ(screen.writes.size(), 3u);
  EXPECT_EQ(screen.writes[0], "\rstep 120/1000  loss 2.4312  12,345 tokens/s  left 1:01:23\x1b[K");
  EXPECT_EQ(screen.writes[1], "\r" + FormatProgress({.step = 122, .loss = 1}, 60) + "\x1b[K");
  EXPECT_EQ(screen.writes[2], "\n");
}

TEST(ProgressLine, ClearTakesTheLineAwayAndTheNextUpdateDrawsAtOnce) {
  Screen screen;
  ProgressLine progress(screen.Options(ProgressStyle::kRedrawn));
  progress.Update({.step = 1});
  progress.Clear();
  progress.Clear();
  progress.Update({.step = 2});
  ASSERT_EQ(screen.writes.size(), 3u);
  EXPECT_EQ(screen.writes[1], "\r\x1b[K");
  EXPECT_EQ(screen.writes[2], "\r" + FormatProgress({.step = 2}) + "\x1b[K");
}

TEST(ProgressLine, WithoutAWriterItIsSilent) {
  ProgressLine progress({});
  progress.Update({.step = 1});
  progress.Clear();
  progress.Finish();
}

TEST(ProgressTo, APipeGetsPlainLines) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  ProgressLine progress(ProgressTo(ends[1]));
  progress.Update({.step = 1});
  progress.Finish();
  close(ends[1]);
  std::string text(4096, '\0');
  text.resize(static_cast<std::size_t>(read(ends[0], text.data(), text.size())));
  close(ends[0]);
  EXPECT_EQ(text, FormatProgress({.step = 1}) + "\n");
}

TEST(ProgressTo, ATerminalGetsARedrawnLineOfItsWidth) {
  const int controller = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
  ASSERT_GE(controller, 0);
  ASSERT_EQ(grantpt(controller), 0);
  ASSERT_EQ(unlockpt(controller), 0);
  const int terminal = open(ptsname(controller), O_RDWR | O_NOCTTY | O_CLOEXEC);
  ASSERT_GE(terminal, 0);
  const winsize size{.ws_row = 24, .ws_col = 61, .ws_xpixel = 0, .ws_ypixel = 0};
  ASSERT_EQ(ioctl(terminal, TIOCSWINSZ, &size), 0);

  ProgressOptions options = ProgressTo(terminal);
  EXPECT_EQ(options.style, ProgressStyle::kRedrawn);
  ASSERT_TRUE(options.columns);
  EXPECT_EQ(options.columns(), 61);
  ProgressLine progress(std::move(options));
  progress.Update(Full());
  std::string text(4096, '\0');
  text.resize(static_cast<std::size_t>(read(controller, text.data(), text.size())));
  EXPECT_EQ(text, "\rstep 120/1000  loss 2.4312  12,345 tokens/s  left 1:01:23\x1b[K");
  close(terminal);
  close(controller);
}

}  // namespace
}  // namespace ait

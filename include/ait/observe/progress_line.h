// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_OBSERVE_PROGRESS_LINE_H_
#define AIT_OBSERVE_PROGRESS_LINE_H_

// The one line that tells how training goes.
//
// On a terminal the line is redrawn in place and fits its width: what matters least is left out
// first. Elsewhere (a log file, a batch system) it is a plain full line every few seconds, so a log
// has neither thousands of lines nor carriage returns. The text goes to a function of the program;
// ait itself prints nothing.
//
//   ProgressLine progress(ProgressTo(STDERR_FILENO));
//   for (…) progress.Update(metrics);
//   progress.Finish();
//
//   step 120/1000  epoch 0.31  loss 2.4312  lr 3.00e-04  norm 0.912  12,345 tokens/s
//   83.1 ms/step  comm 3.2%  mem 1.2 GiB  elapsed 0:10  left 1:23             (all in one line)
//
// **Thread-safety.** One thread at a time.

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "ait/base/clock.h"
#include "ait/observe/step_metrics.h"

namespace ait::inline v0 {

enum class ProgressStyle {
  kPlain,    // whole lines, each ended by a newline
  kRedrawn,  // one line, redrawn by carriage return and ANSI "erase to end of line"
};

struct ProgressOptions {
  /// Receives the text. Empty: nothing is shown.
  std::function<void(std::string_view)> write;
  ProgressStyle style = ProgressStyle::kPlain;
  /// Width of the terminal, asked at every redraw. Empty or 0: the line is not shortened.
  std::function<int()> columns;
  /// Least time between two lines; default 5 s for plain, 100 ms for redrawn.
  std::optional<Duration> interval;
  Clock* clock = &SystemClock();
};

/// Options for a file descriptor of the program, such as STDERR_FILENO, which stays open: redrawn
/// if it is a terminal (with its width), else plain. Failing writes are ignored.
ProgressOptions ProgressTo(int file_descriptor);

class ProgressLine {
 public:
  explicit ProgressLine(ProgressOptions options) : options_(std::move(options)) {}

  /// Shows the step, unless the last line is younger than the interval. The first is always shown.
  void Update(const StepMetrics& metrics);

  /// Takes a redrawn line off the screen, so that the program can print something of its own; the
  /// next `Update` draws it again at once. Does nothing in plain style.
  void Clear();

  /// Shows the last step if it has not been shown, and ends a redrawn line with a newline.
  void Finish();

 private:
  void Show(const StepMetrics& metrics);

  ProgressOptions options_;
  std::optional<Time> last_shown_;
  std::optional<StepMetrics> pending_;  // newest step, if it has not been shown
  bool on_screen_ = false;              // a redrawn line stands without its newline
};

/// The text of the line, at most `columns` characters if that is positive. Step and loss are always
/// there, cut if they must be. The total of steps, the epoch and the time left, which a run may
/// have no way to know, are left out then; the other fields that are not known say "unknown".
std::string FormatProgress(const StepMetrics& metrics, int columns = 0);

}  // namespace ait::inline v0

#endif  // AIT_OBSERVE_PROGRESS_LINE_H_

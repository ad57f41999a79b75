// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CLI_CONSOLE_H_
#define AIT_CLI_CONSOLE_H_

// Brings what many ranks write to one terminal or file: whole lines, each with its rank in front.
//
// A line that rank 0 redraws by carriage returns stays a redrawn line on a terminal: it is passed
// on as it comes, taken away while another rank's line is written, and drawn again below it. In a
// file a line is a line, with its carriage returns in it.

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "ait/launch/launcher.h"

namespace ait::cli {

struct ConsoleOptions {
  bool prefix = true;
  bool output_is_terminal = false;
  bool error_is_terminal = false;
  /// Writes to the stream of this process.
  std::function<void(RankStream stream, std::string_view text)> write;
};

class Console final : public RankOutput {
 public:
  Console(int world_size, ConsoleOptions options);
  /// Ranks of this host are numbered from here; before the first `Write`.
  void set_first_rank(int rank) { first_rank_ = rank; }
  void Write(Rank rank, RankStream stream, std::string_view text) override;

 private:
  static constexpr std::size_t kMaxLine = 65'536;  // a longer line is broken there

  struct Line {
    std::string text;       // since the last newline
    std::size_t shown = 0;  // so much of it is on the screen: it is redrawn
  };

  // Only rank 0 has lines that are on the screen without their newline.
  const Line& redrawn(RankStream stream) const { return lines_[static_cast<int>(stream)].front(); }
  bool IsTerminal(RankStream stream) const;
  void WriteLine(int rank, RankStream stream, std::string_view line);
  void WriteRedrawn(RankStream stream, Line& line);

  ConsoleOptions options_;
  int first_rank_ = 0;
  std::vector<Line> lines_[2];  // by stream and rank
};

}  // namespace ait::cli

#endif  // AIT_CLI_CONSOLE_H_

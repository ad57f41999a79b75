// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_LAUNCH_LINE_TAIL_INTERNAL_H_
#define AIT_LAUNCH_LINE_TAIL_INTERNAL_H_

// Keeps the last lines of a stream, in bounded memory.

#include <cstddef>
#include <string>
#include <string_view>

namespace ait::inline v0::internal {

class LineTail {
 public:
  static constexpr int kLines = 20;
  static constexpr std::size_t kMaxBytes = 8192;

  void Add(std::string_view text) {
    text_ += text;
    if (text_.size() > 2 * kMaxBytes) text_.erase(0, text_.size() - kMaxBytes);
  }

  /// The last lines that are not empty; of a line that was redrawn by carriage returns, its last
  /// state.
  std::string Lines() const {
    std::string result;
    std::size_t end = text_.size();
    for (int lines = 0; lines < kLines && end > 0;) {
      const std::size_t newline = text_.rfind('\n', end - 1);
      const std::size_t begin = newline == std::string::npos ? 0 : newline + 1;
      std::string_view line = std::string_view(text_).substr(begin, end - begin);
      while (line.ends_with('\r')) line.remove_suffix(1);
      line.remove_prefix(line.rfind('\r') == std::string_view::npos ? 0 : line.rfind('\r') + 1);
      if (!line.empty()) {
        result.insert(0, std::string(line) + "\n");
        ++lines;
      }
      end = newline == std::string::npos ? 0 : newline;
    }
    return result;
  }

 private:
  std::string text_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_LAUNCH_LINE_TAIL_INTERNAL_H_

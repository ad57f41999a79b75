// SPDX-License-Identifier: Apache-2.0
#include "cli/console.h"

#include <utility>

namespace ait::cli {
namespace {

constexpr std::string_view kEraseLine = "\r\x1b[K";  // ECMA-48: erase from the cursor to the end

}  // namespace

Console::Console(int world_size, ConsoleOptions options) : options_(std::move(options)) {
  for (auto& lines : lines_) lines.resize(static_cast<std::size_t>(world_size));
}

bool Console::IsTerminal(RankStream stream) const {
  return stream == RankStream::kOutput ? options_.output_is_terminal : options_.error_is_terminal;
}

void Console::Write(Rank rank, RankStream stream, std::string_view text) {
  if (!options_.prefix) {
    if (!text.empty()) options_.write(stream, text);
    return;
  }
  Line& line =
      lines_[static_cast<int>(stream)][static_cast<std::size_t>(rank.value() - first_rank_)];
  if (text.empty()) {  // the end of the stream, perhaps in the middle of a line
    if (!line.text.empty()) text = "\n";
  }
  while (!text.empty()) {
    const std::size_t newline = text.find('\n');
    line.text += text.substr(0, newline);
    text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
    if (newline != std::string_view::npos || line.text.size() >= kMaxLine) {
      const Line whole = std::exchange(line, Line());
      if (whole.shown > 0) {
        options_.write(stream, whole.text.substr(whole.shown) + "\n");
      } else {
        WriteLine(rank.value(), stream, whole.text);
      }
    }
  }
  const bool is_redrawn = rank == Rank(0) && line.text.find('\r') != std::string::npos;
  if (is_redrawn && IsTerminal(stream)) WriteRedrawn(stream, line);
}

void Console::WriteRedrawn(RankStream stream, Line& line) {
  options_.write(stream, std::string_view(line.text).substr(line.shown));
  line.text.erase(0, line.text.rfind('\r'));  // what was drawn over is of no use
  line.shown = line.text.size();
  if (line.text == kEraseLine) line = Line();  // taken away: what follows is an ordinary line
}

void Console::WriteLine(int rank, RankStream stream, std::string_view line) {
  if (IsTerminal(stream)) {  // a carriage return would write over the prefix
    while (line.ends_with('\r')) line.remove_suffix(1);
    const std::size_t drawn_over = line.rfind('\r');
    if (drawn_over != std::string_view::npos) line.remove_prefix(drawn_over + 1);
  }
  for (const RankStream other : {RankStream::kOutput, RankStream::kError}) {
    if (redrawn(other).shown > 0) options_.write(other, kEraseLine);
  }
  options_.write(stream, StrCat("[", rank, "] ", line, "\n"));
  for (const RankStream other : {RankStream::kOutput, RankStream::kError}) {
    if (redrawn(other).shown > 0) options_.write(other, redrawn(other).text);
  }
}

}  // namespace ait::cli

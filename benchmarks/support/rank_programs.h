// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_BENCHMARKS_SUPPORT_RANK_PROGRAMS_H_
#define AIT_BENCHMARKS_SUPPORT_RANK_PROGRAMS_H_

// Programs that a benchmark starts as ranks, itself or a peer's script, and what they print: one
// JSON object a line on the standard output of any rank. Lines that do not begin with "{" (of
// libraries that log there) are left out.
//
//   for (const nlohmann::json& row : RunRanks({argv[0], "rank", "A"})) …

#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ait/base/throw_on_error.h"
#include "ait/launch/launcher.h"

namespace ait::benchmarks {

/// Collects standard output, each rank's apart; errors go to those of this process.
class CollectedOutput final : public RankOutput {
 public:
  void Write(Rank rank, RankStream stream, std::string_view text) override {
    if (stream == RankStream::kOutput) text_[rank.value()] += text;
    if (stream == RankStream::kError) std::fwrite(text.data(), 1, text.size(), stderr);
  }

  std::vector<nlohmann::json> Rows() const {
    std::vector<nlohmann::json> rows;
    for (const auto& [rank, text] : text_) {
      std::istringstream lines(text);
      for (std::string line; std::getline(lines, line);) {
        if (line.starts_with('{')) rows.push_back(nlohmann::json::parse(line));
      }
    }
    return rows;
  }

 private:
  std::map<int, std::string> text_;
};

/// How many ranks a program runs as, and of how many threads each.
struct RankCount {
  WorldSize ranks = WorldSize(2);
  int threads = 1;
};

/// Runs `command` as ranks, unbound as the peers are. A peer's script takes RankPort::kFree.
inline std::vector<nlohmann::json> RunRanks(std::vector<std::string> command,
                                            RankPort port = RankPort::kInherited,
                                            RankCount count = {}) {
  CollectedOutput output;
  auto launcher = ThrowOnError(Launcher::Create({.command = std::move(command),
                                                 .world_size = count.ranks,
                                                 .binding = CpuBinding::kNone,
                                                 .threads = count.threads,
                                                 .output = &output,
                                                 .port = port}));
  ThrowOnError(ThrowOnError(launcher.Run()).status);
  return output.Rows();
}

}  // namespace ait::benchmarks

#endif  // AIT_BENCHMARKS_SUPPORT_RANK_PROGRAMS_H_

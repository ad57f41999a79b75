// SPDX-License-Identifier: Apache-2.0
#include "cli/pack.h"

#include <chrono>
#include <cstdio>
#include <cxxopts.hpp>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "ait/data/pack.h"
#include "cli/program.h"
#include "cli/shards.h"

namespace ait::cli {
namespace {

constexpr char kExamples[] = R"(
Files that begin as gzip are unpacked (.gz, and .dz of dictzip). Every byte is a token, every file a
document with one token 0 after it. Packing the same again does nothing.

Examples:
  ait pack text book.txt --out corpus
  ait pack text a.txt b.txt.gz --out corpus --shard-tokens 1000000 --force
)";

int Pack(const std::vector<std::string>& files, const PackOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  const StatusOr<PackReport> report = PackText(files, options);
  if (!report.ok()) return Fail("pack", report.status());
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  const std::string text =
      StrCat(options.directory, ": ", Counted(report->tokens, "token"), " of a vocabulary of ",
             report->vocabulary_size, ", ", Counted(report->documents, "document"), ", ",
             Counted(report->shards, "shard"));
  std::printf("%s; %s %.1f s\n", text.c_str(),
              report->was_up_to_date ? "up to date, checked in" : "packed in", elapsed.count());
  return kSuccess;
}

}  // namespace

int RunPack(int argc, char** argv) {
  if (argc > 1 && std::string_view(argv[1]) == "files") return RunPackFiles(argc, argv);
  cxxopts::Options options(
      "ait pack",
      "Turns text files into a corpus for TokenDataset; 'ait pack files --help' tells of folders "
      "of other files.\n");
  options.custom_help("text FILE... --out DIR [OPTION...]");
  const std::string shard_tokens = std::to_string(PackOptions().shard_tokens);
  options.add_options()  //
      ("out", "directory of the corpus; made if it does not exist", cxxopts::value<std::string>(),
       "DIR")  //
      ("shard-tokens", "most tokens of a file",
       cxxopts::value<std::string>()->default_value(shard_tokens), "N")  //
      ("force", "replace another corpus in DIR")                         //
      ("h,help", "print this help");
  try {
    const cxxopts::ParseResult parsed = options.parse(argc, argv);
    if (parsed.count("help") != 0) {
      std::printf("%s%s", options.help().c_str(), kExamples);
      return kSuccess;
    }
    // Not a value of cxxopts, which would split names at commas.
    std::vector<std::string> words = parsed.unmatched();
    if (words.empty() || words.front() != "text") {
      return FailUsage("pack", "the first word says what is packed, and must be 'text' or 'files'");
    }
    words.erase(words.begin());
    if (words.empty()) return FailUsage("pack", "no files to pack");
    if (parsed.count("out") == 0 || parsed["out"].as<std::string>().empty()) {
      return FailUsage("pack", "no --out DIR");
    }
    const auto most_tokens = ParseNumber<std::int64_t>(
        "--shard-tokens", parsed["shard-tokens"].as<std::string>(), 1,
        std::numeric_limits<std::int64_t>::max(), "a whole number, at least 1");
    if (!most_tokens.ok()) return FailUsage("pack", Message(most_tokens.status()));
    return Pack(words, {.directory = parsed["out"].as<std::string>(),
                        .shard_tokens = *most_tokens,
                        .existing = parsed.count("force") != 0 ? ExistingCorpus::kReplace
                                                               : ExistingCorpus::kRefuse});
  } catch (const cxxopts::exceptions::exception& error) {
    return FailUsage("pack", error);
  }
}

}  // namespace ait::cli

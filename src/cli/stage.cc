// SPDX-License-Identifier: Apache-2.0
#include "cli/stage.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <cxxopts.hpp>
#include <memory>
#include <string>
#include <vector>

#include "ait/data/cache/stage.h"
#include "ait/data/storage/open_storage.h"
#include "cli/program.h"

namespace ait::cli {
namespace {

constexpr char kExamples[] = R"(
SRC is a directory, or s3://BUCKET/PREFIX/. Every file below it becomes a file of the same name
below DIR, which a run then opens instead of SRC. A copy that was ended goes on where it was. Files
are read back before they get their names; ait-stage.json in DIR has their checksums.

Examples:
  ait stage /nfs/imagenet /nvme/imagenet -j 16
  ait stage s3://bucket/train/ /nvme/train --dry-run
  ait stage s3://bucket/train/ /nvme/train --verify
)";

std::string Text(double value) {
  std::array<char, 32> text;
  std::snprintf(text.data(), text.size(), "%.1f", value);
  return text.data();
}

// "1.5 GB": decimal units, as disks and networks have.
std::string Size(double bytes) {
  constexpr std::array kUnits = {"B", "kB", "MB", "GB", "TB", "PB"};
  std::size_t unit = 0;
  for (; bytes >= 1000 && unit + 1 < kUnits.size(); ++unit) bytes /= 1000;
  return StrCat(unit == 0 ? std::to_string(static_cast<long>(bytes)) : Text(bytes), " ",
                kUnits[unit]);
}

std::string TimeAndRate(std::int64_t bytes, std::chrono::duration<double> time) {
  std::string text = StrCat(Text(time.count()), " s");
  if (bytes > 0 && time.count() > 0) {
    text += StrCat(" (", Size(static_cast<double>(bytes) / time.count()), "/s)");
  }
  return text;
}

// A line on the terminal that is drawn again, at most ten times a second.
class ProgressLine {
 public:
  Status Show(const StageProgress& progress) {
    const auto now = std::chrono::steady_clock::now();
    const bool is_new_phase = progress.phase != phase_ || start_ == Time();
    if (is_new_phase) {
      phase_ = progress.phase;
      start_ = now;
      first_bytes_ = progress.bytes_done;
    }
    if (!is_new_phase && now < next_) return OkStatus();
    next_ = now + std::chrono::milliseconds(100);
    const std::chrono::duration<double> elapsed = now - start_;
    const auto bytes = static_cast<double>(progress.bytes_done - first_bytes_);
    const std::string text =
        StrCat(phase_ == StageProgress::Phase::kCopy ? "copied " : "read back ",
               Size(static_cast<double>(progress.bytes_done)), " of ",
               Size(static_cast<double>(progress.bytes)),
               elapsed.count() > 0 ? StrCat(", ", Size(bytes / elapsed.count()), "/s") : "");
    std::fprintf(stderr, "\r\033[K%s", text.c_str());
    std::fflush(stderr);
    is_shown_ = true;
    return OkStatus();
  }
  void Clear() {
    if (is_shown_) std::fprintf(stderr, "\r\033[K");
    is_shown_ = false;
  }

 private:
  using Time = std::chrono::steady_clock::time_point;
  StageProgress::Phase phase_ = StageProgress::Phase::kCopy;
  Time start_{}, next_{};
  std::int64_t first_bytes_ = 0;
  bool is_shown_ = false;
};

int CopyAndReport(const std::string& source_url, StageOptions options) {
  const auto source = OpenStorage(source_url);
  if (!source.ok()) return Fail("stage", source.status());
  ProgressLine line;
  if (::isatty(STDERR_FILENO) != 0) {
    options.progress = [&line](const StageProgress& progress) { return line.Show(progress); };
  }
  const StatusOr<StageReport> report = Stage(**source, source_url, options);
  line.Clear();
  if (!report.ok()) return Fail("stage", report.status());
  const auto size = [](std::int64_t bytes) { return Size(static_cast<double>(bytes)); };
  std::string text = StrCat(options.directory, ": ", Counted(report->files, "file"), ", ",
                            size(report->bytes), ", of which ", report->found_files, " were there");
  if (options.action == StageAction::kPlan) {
    text += StrCat("; would copy ", size(report->copied_bytes), ", free are ",
                   size(report->free_bytes));
  } else {
    if (report->resumed_bytes > 0) {
      text += StrCat("; went on after ", size(report->resumed_bytes));
    }
    text += StrCat("; copied ", size(report->copied_bytes), " in ",
                   TimeAndRate(report->copied_bytes, report->copy_time), "; read back ",
                   size(report->verified_bytes), " in ",
                   TimeAndRate(report->verified_bytes, report->verify_time));
    if (report->damaged_parts > 0) {
      text += StrCat("; ", Counted(report->damaged_parts, "damaged part"), " copied again");
    }
  }
  std::printf("%s\n", text.c_str());
  return kSuccess;
}

}  // namespace

int RunStage(int argc, char** argv) {
  cxxopts::Options options("ait stage", "Copies a data set to a local directory before a run.\n");
  options.custom_help("SRC DIR [OPTION...]");
  const StageOptions defaults;
  options.add_options()  //
      ("j,jobs", "files and parts that are copied at once",
       cxxopts::value<std::string>()->default_value(std::to_string(defaults.threads)), "N")  //
      ("part-size", "what is copied and checked as one",
       cxxopts::value<std::string>()->default_value("8M"), "SIZE")                 //
      ("dry-run", "only say how much would be copied")                             //
      ("verify", "also read back what was there, and copy again what is damaged")  //
      ("h,help", "print this help");
  try {
    const cxxopts::ParseResult parsed = options.parse(argc, argv);
    if (parsed.count("help") != 0) {
      std::printf("%s%s", options.help().c_str(), kExamples);
      return kSuccess;
    }
    // Not a value of cxxopts, which would split names at commas.
    const std::vector<std::string> words = parsed.unmatched();
    if (words.size() != 2) return FailUsage("stage", "give two names, SRC and DIR");
    const auto jobs = ParseNumber<int>("--jobs", parsed["jobs"].as<std::string>(), 1, 1024,
                                       "a whole number of 1 to 1024");
    if (!jobs.ok()) return FailUsage("stage", Message(jobs.status()));
    const auto part = ParseByteSize("--part-size", parsed["part-size"].as<std::string>());
    if (!part.ok()) return FailUsage("stage", Message(part.status()));
    return CopyAndReport(
        words[0], {.directory = words[1],
                   .threads = *jobs,
                   .part_bytes = *part,
                   .action = parsed.count("dry-run") != 0 ? StageAction::kPlan : StageAction::kCopy,
                   .verify = parsed.count("verify") != 0 ? StageVerification::kAll
                                                         : StageVerification::kCopied});
  } catch (const cxxopts::exceptions::exception& error) {
    return FailUsage("stage", error);
  }
}

}  // namespace ait::cli

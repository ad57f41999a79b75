// SPDX-License-Identifier: Apache-2.0
#include "cli/shards.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cxxopts.hpp>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "ait/data/format/formats.h"
#include "ait/data/format/write_shards.h"
#include "ait/data/storage/open_storage.h"
#include "cli/program.h"

namespace ait::cli {
namespace {

constexpr char kExamples[] = R"(
A sample is what the source says it is: the files of one key in a folder or tar, a row, a line, a
record. Samples keep their order. A run that was stopped goes on where it was; every shard is read
back and compared.

Examples:
  ait pack files photos/ --out packed                            a folder of files into tars
  ait convert packed/ --out mds --format mds --shard-size 64M
  ait convert s3://bucket/train/ --out local --jobs 8
)";

// "webdataset, mds, …": what can be written.
std::string WrittenFormats() {
  std::string names;
  for (const FormatInfo& format : KnownFormats()) {
    if (!format.extension.empty()) names += StrCat(names.empty() ? "" : ", ", format.name);
  }
  return names;
}

std::string MiB(std::int64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f MiB", static_cast<double>(bytes) / (1 << 20));
  return text;
}

// A folder that holds its own shards is another folder the next time.
Status CheckOutside(std::string source, const std::string& out) {
  namespace fs = std::filesystem;
  if (source.starts_with("file://")) source.erase(0, 7);
  std::error_code error;
  if (!fs::is_directory(source, error)) return OkStatus();
  const fs::path outer = fs::canonical(source, error), inner = fs::weakly_canonical(out, error);
  if (std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first == outer.end()) {
    return InvalidArgumentError("--out ", out, " lies in the source ", source,
                                ": the shards would be a part of it; choose a directory beside it");
  }
  return OkStatus();
}

int Write(const std::string& command, const std::string& url, const ShardOptions& from,
          WriteShardsOptions options) {
  if (const Status outside = CheckOutside(url, options.directory); !outside.ok()) {
    return Fail(command, outside);
  }
  const auto start = std::chrono::steady_clock::now();
  const bool shows_progress = ::isatty(STDERR_FILENO) == 1;
  if (shows_progress) {
    options.progress = [](const WriteProgress& progress) {
      std::fprintf(stderr, "\r%lld of %lld shards, %s   ", static_cast<long long>(progress.shards),
                   static_cast<long long>(progress.shard_count), MiB(progress.bytes).c_str());
      return true;
    };
  }
  StatusOr<std::shared_ptr<const Storage>> storage = OpenStorage(url);
  if (!storage.ok()) return Fail(command, storage.status());
  const auto source = OpenSamples(*storage, url, {.shard = from});
  if (!source.ok()) return Fail(command, source.status());
  const StatusOr<WriteReport> report = WriteShards(**source, options);
  if (shows_progress) std::fprintf(stderr, "\r\x1b[K");
  if (!report.ok()) return Fail(command, report.status());
  for (const LeftOutSample& sample : report->left_out) {
    std::fprintf(stderr, "ait %s: left out %s at byte %lld: %s\n", command.c_str(),
                 sample.place.url.c_str(), static_cast<long long>(sample.place.offset_bytes),
                 sample.reason.c_str());
  }
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - start;
  const std::string resumed = report->resumed_shards == 0 ? ""
                                                          : StrCat(" (", report->resumed_shards,
                                                                   " of them by an earlier run)");
  const std::string left_out =
      report->left_out.empty() ? "" : StrCat(", ", report->left_out.size(), " left out");
  std::printf("%s: %s%s in %s%s, %s; %s in %.1f s\n", options.directory.c_str(),
              Counted(report->samples, "sample").c_str(), left_out.c_str(),
              Counted(std::ssize(report->shards), "shard").c_str(), resumed.c_str(),
              MiB(report->bytes).c_str(),
              options.verify ? "written and read back" : "written, not read back,",
              elapsed.count());
  return kSuccess;
}

int Run(const std::string& command, const std::string& usage, const std::string& what,
        const std::string& from_default, int argc, char** argv) {
  cxxopts::Options options(StrCat("ait ", command), what);
  options.custom_help(usage);
  options.add_options()  //
      ("out", "directory of the shards; made if it does not exist", cxxopts::value<std::string>(),
       "DIR")  //
      ("format", StrCat("format of the shards: ", WrittenFormats()),
       cxxopts::value<std::string>()->default_value("webdataset"), "NAME")  //
      ("from", "format of the source, where it cannot be told from its bytes",
       cxxopts::value<std::string>()->default_value(from_default), "NAME")             //
      ("last-dot", "of tars: a name is key and field at its last dot, not the first")  //
      ("no-header", "of CSV: the first line is a sample, not the names")               //
      ("max-record", "largest record that is believed",
       cxxopts::value<std::string>()->default_value("1G"), "SIZE")                        //
      ("examples", "records of TFRecord are tf.train.Example: a field for each feature")  //
      ("shard-size", "most bytes of a shard: 64K to 2G",
       cxxopts::value<std::string>()->default_value("1G"), "SIZE")                      //
      ("shard-samples", "most samples of a shard", cxxopts::value<std::string>(), "N")  //
      ("jobs", "threads that write; default one for each CPU, at most 16",
       cxxopts::value<std::string>(), "N")  //
      ("max-bad", "bad samples that are left out; the next one ends the run",
       cxxopts::value<std::string>()->default_value("0"), "N")  //
      ("no-verify", "do not read the shards back")              //
      ("force", "replace shards of something else in DIR")      //
      ("h,help", "print this help");
  try {
    const cxxopts::ParseResult parsed = options.parse(argc, argv);
    if (parsed.count("help") != 0) {
      std::printf("%s%s", options.help().c_str(), kExamples);
      return kSuccess;
    }
    const std::vector<std::string> words = parsed.unmatched();
    if (words.size() != 1) {
      return FailUsage(command, words.empty() ? "nothing to read is named"
                                              : "one source is read at a time; put its files into "
                                                "one directory");
    }
    if (parsed.count("out") == 0 || parsed["out"].as<std::string>().empty()) {
      return FailUsage(command, "no --out DIR");
    }
    WriteShardsOptions write{.directory = parsed["out"].as<std::string>(),
                             .format = parsed["format"].as<std::string>(),
                             .verify = parsed.count("no-verify") == 0,
                             .existing = parsed.count("force") != 0 ? ExistingShards::kReplace
                                                                    : ExistingShards::kRefuse};
    const auto size = ParseByteSize("--shard-size", parsed["shard-size"].as<std::string>());
    if (!size.ok()) return FailUsage(command, Message(size.status()));
    write.shard_bytes = *size;
    const auto number = [&](const char* option, std::int64_t most, auto& target) -> Status {
      if (parsed.count(option) == 0) return OkStatus();
      const std::int64_t least = std::string_view(option) == "max-bad" ? 0 : 1;
      AIT_ASSIGN_OR_RETURN(
          const std::int64_t value,
          ParseNumber<std::int64_t>(StrCat("--", option), parsed[option].as<std::string>(), least,
                                    most, StrCat("a whole number, ", least, " to ", most)));
      target = static_cast<std::decay_t<decltype(target)>>(value);
      return OkStatus();
    };
    for (const Status& status :
         {number("shard-samples", std::int64_t{1} << 40, write.shard_samples),
          number("jobs", 1024, write.threads),
          number("max-bad", std::int64_t{1} << 40, write.max_bad_samples)}) {
      if (!status.ok()) return FailUsage(command, Message(status));
    }
    const auto record = ParseByteSize("--max-record", parsed["max-record"].as<std::string>());
    if (!record.ok()) return FailUsage(command, Message(record.status()));
    const ShardOptions from = {
        .format = parsed["from"].as<std::string>(),
        .max_record_bytes = *record,
        .key_rule = parsed.count("last-dot") != 0 ? KeyRule::kLastDot : KeyRule::kFirstDot,
        .tfrecord_payload =
            parsed.count("examples") != 0 ? TfrecordPayload::kExample : TfrecordPayload::kBytes,
        .csv_header = parsed.count("no-header") == 0};
    return Write(command, words.front(), from, std::move(write));
  } catch (const cxxopts::exceptions::exception& error) {
    return FailUsage(command, error);
  }
}

}  // namespace

int RunConvert(int argc, char** argv) {
  return Run("convert", "SOURCE --out DIR [OPTION...]",
             "Writes samples of any known format as shards of another.\n", "", argc, argv);
}

int RunPackFiles(int argc, char** argv) {
  return Run("pack", "files FOLDER --out DIR [OPTION...]",
             "Packs a folder of files into shards, which are read many times as fast.\n", "folder",
             argc - 1, argv + 1);
}

}  // namespace ait::cli

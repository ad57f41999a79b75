// SPDX-License-Identifier: Apache-2.0
#include "cli/inspect.h"

#include <algorithm>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <cxxopts.hpp>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "ait/data/format/formats.h"
#include "ait/data/format/index.h"
#include "ait/data/storage/open_storage.h"
#include "cli/program.h"

namespace ait::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kExamples[] = R"(
Reads every sample (--quick: only the first), so that damage is found where it is. The exit code is 0
if all is well, 1 if something is damaged or is of no known format.

Examples:
  ait inspect train/                         a directory of shards
  ait inspect shard-00000.tar --samples 5
  ait inspect s3://bucket/train/ --quick
  ait inspect train/ --json report.json
)";

constexpr std::int64_t kMostIndexBytes = std::int64_t{1} << 32;
constexpr std::int64_t kMostFindings = 20;  // that are printed of one file; all are counted

std::string KindText(const SampleField& field) {
  switch (field.kind) {
    case FieldKind::kText:
      return "text";
    case FieldKind::kBytes:
      return "bytes";
    case FieldKind::kArray:
      break;
  }
  std::string shape;
  for (const std::int64_t size : field.shape) shape += StrCat(shape.empty() ? "" : ", ", size);
  return StrCat(Name(field.dtype), "[", shape, "]");
}

// What can be shown of a value: short text as it is, anything else as its first bytes.
std::string Preview(const SampleField& field) {
  constexpr std::size_t kMost = 40;
  const std::string_view text = field.value.text().substr(0, kMost);
  const bool is_cut = field.value.size_bytes() > kMost;
  const bool is_printable =
      field.kind != FieldKind::kArray && std::all_of(text.begin(), text.end(), [](char c) {
        return static_cast<unsigned char>(c) >= 0x20 && c != 0x7f;
      });
  if (is_printable) return StrCat("'", text, is_cut ? "…" : "", "'");
  std::string digits;
  for (const char c : text.substr(0, 12)) {
    char two[4];
    std::snprintf(two, sizeof(two), "%02x ", static_cast<unsigned>(static_cast<unsigned char>(c)));
    digits += two;
  }
  return digits + (field.value.size_bytes() > 12 ? "…" : "");
}

Json Describe(const Sample& sample) {
  Json fields = Json::array();
  for (const SampleField& field : sample.fields) {
    fields.push_back({{"name", field.name},
                      {"kind", KindText(field)},
                      {"bytes", field.value.size_bytes()},
                      {"preview", Preview(field)}});
  }
  return {{"id", sample.id}, {"key", sample.key}, {"fields", std::move(fields)}};
}

struct InspectOptions {
  std::int64_t samples = 3;
  bool quick = false;
  ShardOptions shard;
};

// One file or one collection, as JSON: what is printed is made of it.
class Inspection {
 public:
  Inspection(std::shared_ptr<const Storage> storage, InspectOptions options)
      : storage_(std::move(storage)), options_(std::move(options)) {}

  Json Run(const std::string& url) {
    Json report = {{"path", url}};
    std::vector<ObjectInfo> files;  // that may hold samples
    const bool is_file = storage_->Stat(url).ok();
    if (is_file && LookAtSidecar(url, report)) return report;
    if (!is_file) ListFiles(url, files, report);
    const auto source = OpenSamples(storage_, url, {.shard = options_.shard});
    if (source.ok()) {
      Look(**source, report);
      return report;
    }
    Json whole = {
        {"findings", 0}, {"samples", 0}, {"blocks", 0}, {"read", 0}, {"payload_bytes", 0}};
    if (files.size() > 1) {
      for (const ObjectInfo& file : files) Add(file.url, whole);
    }
    if (whole["findings"] == 0) {  // each is good by itself, or there is but one
      whole = {{"findings", 1}, {"damage", {Message(source.status())}}};
    }
    report.update(whole);
    return report;
  }

 private:
  static bool IsSidecar(std::string_view url) {
    return url.ends_with(".aitidx") || url.ends_with("/index.json") || url.ends_with(".idx") ||
           url.ends_with(".index");
  }

  // What lies in a directory: bytes, files and formats.
  void ListFiles(const std::string& url, std::vector<ObjectInfo>& files, Json& report) const {
    std::int64_t bytes = 0;
    const Status listed = storage_->List(url, [&](const ObjectInfo& object) {
      const std::string_view name = std::string_view(object.url).substr(object.url.rfind('/') + 1);
      if (name.empty() || name.front() == '.' || name.ends_with(".partial")) return OkStatus();
      bytes += object.size_bytes;
      if (!IsSidecar(object.url)) files.push_back(object);
      return OkStatus();
    });
    if (!listed.ok() || files.empty()) return;
    report["files"] = files.size();
    report["bytes"] = bytes;
    std::string formats;
    for (std::size_t i = 0; i < std::min<std::size_t>(files.size(), 8); ++i) {
      const auto object = storage_->Open(files[i].url);
      if (!object.ok()) continue;
      const auto format = FormatOf(**object);
      if (!format.ok() || format->empty() || formats.find(*format) != std::string::npos) continue;
      formats += StrCat(formats.empty() ? "" : ", ", *format);
    }
    report["format"] = formats.empty() ? "single files" : formats;
  }

  // Indexes hold no samples; false if this file is none.
  bool LookAtSidecar(const std::string& url, Json& report) const {
    const auto object = storage_->Open(url);
    if (!object.ok() || !options_.shard.format.empty()) return false;
    report["bytes"] = (*object)->info().size_bytes;
    report["findings"] = 0;
    if (url.ends_with(".aitidx")) {
      report["format"] = "index of a shard";
      const StatusOr<ByteView> bytes = ReadWhole(**object, kMostIndexBytes);
      StatusOr<ShardIndex> index =
          bytes.ok() ? ParseIndex(bytes->bytes(), url) : StatusOr<ShardIndex>(bytes.status());
      if (!index.ok()) {
        report["findings"] = 1;
        report["damage"].push_back(Message(index.status()));
        return true;
      }
      report["note"] = StrCat(index->extents.size(), " records of a ", index->format, " shard of ",
                              index->shard_bytes, " bytes",
                              index->checksums.empty() ? ", no checksums" : ", with checksums");
      return true;
    }
    if (url == "index.json" || url.ends_with("/index.json")) {
      report["format"] = "index of a data set (MDS or LitData)";
      report["note"] = "it has no samples itself: inspect its directory";
      return true;
    }
    char magic[7] = {};
    if ((*object)->info().size_bytes >= 9 && url.ends_with(".idx") &&
        (*object)->ReadAt(0, std::as_writable_bytes(std::span(magic))).ok() &&
        std::string_view(magic, 7) == "MMIDIDX") {
      report["format"] = "index of Megatron tokens";
      report["note"] = "it has no samples itself: inspect its directory";
      return true;
    }
    report.erase("findings");
    return false;
  }

  // One file of a directory that cannot be opened as a whole.
  void Add(const std::string& url, Json& whole) const {
    Json one = {{"path", url}};
    if (const auto source = OpenSamples(storage_, url, {.shard = options_.shard}); source.ok()) {
      Look(**source, one);
    } else {
      one["findings"] = 1;
      one["damage"].push_back(Message(source.status()));
    }
    for (const char* name : {"findings", "samples", "blocks", "read", "payload_bytes"}) {
      if (one.contains(name)) {
        whole[name] = whole[name].get<std::int64_t>() + one[name].get<std::int64_t>();
      }
    }
    if (one.contains("fields")) {
      if (!whole.contains("fields")) whole["fields"] = Json::object();
      for (const auto& [name, samples] : one["fields"].items()) {
        whole["fields"][name] =
            whole["fields"].value(name, std::int64_t{0}) + samples.get<std::int64_t>();
      }
    }
    if (one.contains("first") && !whole.contains("first")) whole["first"] = one["first"];
    if (!one.contains("damage")) return;
    for (const Json& finding : one["damage"]) {
      if (std::ssize(whole["damage"]) < kMostFindings) whole["damage"].push_back(finding);
    }
  }

  void Look(const SampleSource& source, Json& report) const {
    const std::int64_t count = source.sample_count();
    report["samples"] = count;
    report["blocks"] = std::max<std::int64_t>(std::ssize(source.block_begins()), count > 0 ? 1 : 0);
    if (const auto object = storage_->Open(report["path"].get<std::string>()); object.ok()) {
      report["bytes"] = (*object)->info().size_bytes;
      if (const auto format = FormatOf(**object); format.ok() && !format->empty()) {
        report["format"] = *format;
      }
    }
    std::int64_t findings = 0, bytes = 0, seen = 0;
    std::map<std::string, std::int64_t> names;
    const std::int64_t end = options_.quick ? std::min(count, options_.samples) : count;
    for (std::int64_t id = 0; id < end;) {
      std::vector<SampleRead> reads;
      std::int64_t batch_bytes = 0;
      for (; id < end && std::ssize(reads) < 256 && batch_bytes < (16 << 20); ++id) {
        batch_bytes += source.size_bytes(id);
        reads.push_back({.id = id});
      }
      source.Read(reads);
      for (const SampleRead& read : reads) {
        if (!read.status.ok()) {
          if (++findings <= kMostFindings) report["damage"].push_back(Message(read.status));
          continue;
        }
        ++seen;
        bytes += read.sample.size_bytes();
        for (const SampleField& field : read.sample.fields) ++names[field.name];
        if (read.id < options_.samples) report["first"].push_back(Describe(read.sample));
      }
    }
    report["read"] = seen;
    report["payload_bytes"] = bytes;
    for (const auto& [name, samples] : names) report["fields"][name] = samples;
    report["findings"] = findings;
  }

  std::shared_ptr<const Storage> storage_;
  const InspectOptions options_;
};

// Names come from files of anybody: control characters are not for the terminal.
std::string Shown(std::string_view text) {
  std::string shown;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : '\0');
    const bool is_c1 = byte == 0xc2 && next >= 0x80 && next < 0xa0;  // in UTF-8
    if (byte >= 0x20 && byte != 0x7f && !is_c1) {
      shown += text[i];
      continue;
    }
    char code[8];
    std::snprintf(code, sizeof(code), "\\x%02x", static_cast<unsigned>(is_c1 ? next : byte));
    shown += code;
    i += is_c1 ? 1 : 0;
  }
  return shown;
}

std::string ShownText(const Json& text) { return Shown(text.get_ref<const std::string&>()); }

void Print(const Json& report) {
  std::printf("%s\n", ShownText(report["path"]).c_str());
  const auto line = [&](const char* name, const std::string& text) {
    std::printf("  %-10s %s\n", name, Shown(text).c_str());
  };
  if (report.contains("format")) line("format", report["format"]);
  if (report.contains("bytes")) line("bytes", StrCat(report["bytes"].get<std::int64_t>()));
  if (report.contains("files")) line("files", StrCat(report["files"].get<std::int64_t>()));
  if (report.contains("note")) line("note", report["note"]);
  if (report.contains("samples")) {
    const auto count = report["samples"].get<std::int64_t>();
    const auto read = report["read"].get<std::int64_t>();
    line("samples", StrCat(count, " in ", Counted(report["blocks"].get<std::int64_t>(), "block"),
                           read == count ? ", all read" : StrCat(", ", read, " read")));
    if (read > 0) {
      const double mean = static_cast<double>(report["payload_bytes"].get<std::int64_t>()) /
                          static_cast<double>(read);
      char text[64];
      std::snprintf(text, sizeof(text), "%.0f bytes of fields a sample", mean);
      line("mean", text);
    }
  }
  if (report.contains("fields")) {
    std::string text;
    for (const auto& [name, samples] : report["fields"].items()) {
      text += StrCat(text.empty() ? "" : ", ", name);
      if (samples != report["read"]) {
        text += StrCat(" (in ", samples.get<std::int64_t>(), " of ",
                       report["read"].get<std::int64_t>(), ")");
      }
    }
    line("fields", text);
  }
  if (report.contains("first")) {
    for (const Json& sample : report["first"]) {
      std::printf("  sample %lld, key '%s'\n",
                  static_cast<long long>(sample["id"].get<std::int64_t>()),
                  ShownText(sample["key"]).c_str());
      for (const Json& field : sample["fields"]) {
        std::printf("    %-16s %-18s %10lld bytes  %s\n", ShownText(field["name"]).c_str(),
                    ShownText(field["kind"]).c_str(),
                    static_cast<long long>(field["bytes"].get<std::int64_t>()),
                    ShownText(field["preview"]).c_str());
      }
    }
  }
  const auto findings = report["findings"].get<std::int64_t>();
  if (findings == 0) {
    line("damage", "none found");
    return;
  }
  line("damage",
       StrCat(Counted(findings, "finding"),
              findings > kMostFindings ? StrCat(", the first ", kMostFindings, ":") : ":"));
  for (const Json& finding : report["damage"]) {
    std::printf("    %s\n", ShownText(finding).c_str());
  }
}

int Inspect(const std::string& url, const InspectOptions& options, const std::string& json_path) {
  StatusOr<std::shared_ptr<const Storage>> storage = OpenStorage(url);
  if (!storage.ok()) return Fail("inspect", storage.status());
  const Json report = Inspection(*std::move(storage), options).Run(url);
  Print(report);
  if (!json_path.empty()) {
    std::FILE* file = std::fopen(json_path.c_str(), "w");
    const std::string text = report.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
    const bool is_written =
        file != nullptr && std::fwrite(text.data(), 1, text.size(), file) == text.size();
    if (file == nullptr || std::fclose(file) != 0 || !is_written) {
      return Fail("inspect", UnavailableError("cannot write ", json_path));
    }
  }
  return report["findings"] == 0 ? kSuccess : kFailure;
}

}  // namespace

int RunInspect(int argc, char** argv) {
  cxxopts::Options options(
      "ait inspect", "Tells what a file or directory of samples holds, and what is damaged.\n");
  options.custom_help("PATH [OPTION...]");
  options.add_options()  //
      ("samples", "first samples to show", cxxopts::value<std::string>()->default_value("3"),
       "N")                                              //
      ("quick", "read only the samples that are shown")  //
      ("from", "format, where it cannot be told from the bytes",
       cxxopts::value<std::string>()->default_value(""), "NAME")                        //
      ("examples", "records of TFRecord are tf.train.Example")                          //
      ("json", "write the report as JSON, too", cxxopts::value<std::string>(), "FILE")  //
      ("formats", "list the formats that are known")                                    //
      ("h,help", "print this help");
  try {
    const cxxopts::ParseResult parsed = options.parse(argc, argv);
    if (parsed.count("help") != 0) {
      std::printf("%s%s", options.help().c_str(), kExamples);
      return kSuccess;
    }
    if (parsed.count("formats") != 0) {
      for (const FormatInfo& format : KnownFormats()) {
        std::printf("  %-12s %-8s %s\n", std::string(format.name).c_str(),
                    format.extension.empty() ? "read" : "written",
                    std::string(format.summary).c_str());
      }
      return kSuccess;
    }
    const std::vector<std::string> words = parsed.unmatched();
    if (words.size() != 1) return FailUsage("inspect", "give one path or URL");
    const auto samples = ParseNumber<std::int64_t>("--samples", parsed["samples"].as<std::string>(),
                                                   0, 1'000'000, "a whole number, 0 to 1000000");
    if (!samples.ok()) return FailUsage("inspect", Message(samples.status()));
    return Inspect(
        words.front(),
        {.samples = *samples,
         .quick = parsed.count("quick") != 0,
         .shard = {.format = parsed["from"].as<std::string>(),
                   .check = ShardCheck::kContents,
                   .tfrecord_payload = parsed.count("examples") != 0 ? TfrecordPayload::kExample
                                                                     : TfrecordPayload::kBytes}},
        parsed.count("json") != 0 ? parsed["json"].as<std::string>() : "");
  } catch (const cxxopts::exceptions::exception& error) {
    return FailUsage("inspect", error);
  }
}

}  // namespace ait::cli

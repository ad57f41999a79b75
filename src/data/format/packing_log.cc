// SPDX-License-Identifier: Apache-2.0
#include "data/format/packing_log_internal.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>
#include <system_error>
#include <utility>

#include "ait/base/durable_file.h"
#include "data/format/format_entry_internal.h"
#include "data/input_file_internal.h"
#include "data/json_internal.h"

namespace ait::inline v0::internal {
namespace {

using Json = nlohmann::json;

constexpr std::string_view kFile = ".packing.jsonl";
constexpr std::int64_t kMostBytes = std::int64_t{1} << 30;

std::string HeaderLine(const PackingPlan& plan) {
  return StrCat(Json{{"format", plan.format},
                     {"plan", HexDigits(plan.digest, 16)},
                     {"shards", plan.shards},
                     {"version", 1}}
                    .dump(),
                "\n");
}

std::string ShardLine(const PackedShard& shard) {
  Json line = {{"bytes", shard.bytes},
               {"file", shard.file},
               {"samples", shard.samples},
               {"shard", shard.number}};
  if (shard.values) line["values"] = HexDigits(*shard.values, 16);
  for (const LeftOutSample& sample : shard.left_out) {
    line["left_out"].push_back({{"url", sample.place.url},
                                {"offset", sample.place.offset_bytes},
                                {"size", sample.place.size_bytes},
                                {"reason", sample.reason}});
  }
  return StrCat(line.dump(-1, ' ', false, Json::error_handler_t::replace), "\n");
}

std::optional<PackedShard> ParseShard(const std::string& text) {
  const Json line = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!line.is_object()) return std::nullopt;
  JsonReader reader;
  PackedShard shard{.number = reader.Integer(line, "shard"),
                    .file = reader.Text(line, "file"),
                    .bytes = reader.Integer(line, "bytes"),
                    .samples = reader.Integer(line, "samples")};
  if (line.contains("values")) shard.values = reader.Hex(line, "values", 16);
  if (line.contains("left_out")) {
    for (const Json& sample : reader.Array(line, "left_out")) {
      shard.left_out.push_back({{.url = reader.Text(sample, "url"),
                                 .offset_bytes = reader.Integer(sample, "offset"),
                                 .size_bytes = reader.Integer(sample, "size")},
                                reader.Text(sample, "reason")});
    }
  }
  // A name that leads out of the directory is none that was written here.
  if (shard.file.find('/') != std::string::npos || !reader.complaint().empty()) return std::nullopt;
  return shard;
}

// What the first line says is packed; empty if there is none that makes sense.
std::string FormatOfHeader(const std::string& text) {
  const Json line = Json::parse(text.substr(0, text.find('\n')), nullptr, false);
  return line.is_object() && line.contains("format") && line["format"].is_string()
             ? line["format"].get<std::string>()
             : "";
}

// The number of a shard by its file name, or by that of the index or the partial file beside it.
std::optional<std::int64_t> NumberOf(std::string_view name, std::string_view prefix,
                                     std::string_view extension) {
  if (name.ends_with(".partial")) name.remove_suffix(8);
  if (name.ends_with(".aitidx")) name.remove_suffix(7);
  if (!name.starts_with(prefix) || !name.ends_with(extension) ||
      name.size() < prefix.size() + extension.size() + 5) {
    return std::nullopt;
  }
  name = name.substr(prefix.size(), name.size() - prefix.size() - extension.size());
  std::int64_t number = -1;
  const auto [end, code] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (code != std::errc() || end != name.data() + name.size() || number < 0) return std::nullopt;
  return number;
}

}  // namespace

std::string PackedFileName(const PackingPlan& plan, std::int64_t number) {
  std::string digits = std::to_string(number);
  digits.insert(0, digits.size() < 5 ? 5 - digits.size() : 0, '0');
  return StrCat(plan.prefix, digits, plan.extension);
}

StatusOr<PackingLog> PackingLog::Open(const std::string& directory, const PackingPlan& plan,
                                      ExistingShards existing) {
  AIT_RETURN_IF_ERROR(MakeDirectoryDurably(directory));
  PackingLog log;
  log.directory_ = directory;
  log.lock_ = FileDescriptor(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!log.lock_.is_open()) return ErrnoError(errno, "cannot open ", directory);
  if (::flock(log.lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) {
      return UnavailableError("another process is writing shards into ", directory,
                              "; wait for it, or choose another directory");
    }
    return ErrnoError(errno, "cannot lock ", directory);
  }
  AIT_RETURN_IF_ERROR(log.Load(plan, existing));
  return log;
}

Status PackingLog::Load(const PackingPlan& plan, ExistingShards existing) {
  const std::string path = StrCat(directory_, "/", kFile);
  std::string text;
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    AIT_ASSIGN_OR_RETURN(text, ReadSmallFile(path, kMostBytes));
  }
  std::string kept = HeaderLine(plan);
  std::vector<PackedShard> old;
  std::size_t at = text.find('\n');
  const bool is_ours = at != std::string::npos && text.compare(0, at + 1, kept) == 0;
  at = at == std::string::npos ? text.size() : at + 1;
  while (at < text.size()) {
    const std::size_t end = text.find('\n', at);
    if (end == std::string::npos) break;  // cut off: the process died before it was written
    if (auto shard = ParseShard(text.substr(at, end - at))) old.push_back(*std::move(shard));
    at = end + 1;
  }
  AIT_RETURN_IF_ERROR(ClearForeign(plan, is_ours, FormatOfHeader(text), existing));
  for (PackedShard& shard : old) {
    if (!is_ours) break;
    const std::string file = StrCat(directory_, "/", shard.file);
    const auto size = std::filesystem::file_size(file, error);
    if (shard.file != PackedFileName(plan, shard.number)) continue;
    if (error || static_cast<std::int64_t>(size) != shard.bytes) continue;  // is written again
    kept += ShardLine(shard);
    shards_.insert_or_assign(shard.number, std::move(shard));
  }
  // Written anew, so that lines that do not count are gone before the next is appended.
  AIT_RETURN_IF_ERROR(WriteFileDurably(path, kept));
  file_ = FileDescriptor(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  if (!file_.is_open()) return ErrnoError(errno, "cannot append to ", path);
  return OkStatus();
}

Status PackingLog::ClearForeign(const PackingPlan& plan, bool is_ours,
                                const std::string& old_format, ExistingShards existing) const {
  const ShardFormat* old = ShardFormatNamed(old_format);
  std::vector<std::string> removable;  // written by packing, as their names say
  std::vector<std::string> others;     // would be read as shards, too
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory_, error)) {
    const std::string name = entry.path().filename().string();
    if (name.front() == '.') continue;
    const auto number = NumberOf(name, plan.prefix, plan.extension);
    if (is_ours && ((number && *number < plan.shards) || name == "index.json")) continue;
    const bool is_of_old = old != nullptr && !old->extension.empty() &&
                           NumberOf(name, old->file_prefix, old->extension).has_value();
    const bool is_index = name == "index.json";  // rules over all files of the directory
    if (number || is_of_old || (is_index && old != nullptr && old->finish != nullptr)) {
      removable.push_back(name);
    } else if (is_index || name.ends_with(plan.extension)) {
      others.push_back(name);
    }
  }
  if (error) return ErrnoError(error.value(), "cannot list ", directory_);
  std::sort(removable.begin(), removable.end());
  std::sort(others.begin(), others.end());
  if (!others.empty()) {
    return FailedPreconditionError(
        directory_, " holds ", others.front(),
        others.size() > 1 ? StrCat(" and ", others.size() - 1, " more") : "",
        ", which would be read as one of the shards and is none; choose "
        "another directory");
  }
  if (!removable.empty() && existing == ExistingShards::kRefuse) {
    return FailedPreconditionError(
        directory_,
        " holds shards of other samples or options, or files with their names, such as ",
        removable.front(), "; choose another directory, or ask to replace them");
  }
  for (const std::string& name : removable) {
    if (!std::filesystem::remove(StrCat(directory_, "/", name), error) && error) {
      return ErrnoError(error.value(), "cannot remove ", directory_, "/", name);
    }
  }
  return OkStatus();
}

Status PackingLog::AppendLine(const std::string& line) {
  const ssize_t written = ::write(file_.get(), line.data(), line.size());
  if (written != std::ssize(line) || ::fdatasync(file_.get()) != 0) {
    return ErrnoError(written < 0 ? errno : ENOSPC, "cannot write ", directory_, "/", kFile);
  }
  return OkStatus();
}

Status PackingLog::Add(const PackedShard& shard) {
  AIT_RETURN_IF_ERROR(AppendLine(ShardLine(shard)));
  shards_.insert_or_assign(shard.number, shard);
  return OkStatus();
}

}  // namespace ait::inline v0::internal

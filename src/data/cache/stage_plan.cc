// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <unordered_map>
#include <unordered_set>

#include "ait/base/types.h"
#include "base/file_descriptor.h"
#include "data/cache/file_io_internal.h"
#include "data/cache/stage_files_internal.h"
#include "data/input_file_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

constexpr std::int64_t kPage = 4096;
constexpr std::int64_t kMaxManifestBytes = std::int64_t{1} << 32;

std::int64_t SizeOf(const std::string& path) {
  struct stat info{};
  return ::lstat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode) ? info.st_size : -1;
}

// A path below the directory that leads nowhere else.
bool IsPlainName(std::string_view name) {
  if (name.empty() || name.find('\0') != std::string_view::npos) return false;
  for (std::size_t start = 0; start <= name.size();) {
    const std::size_t end = std::min(name.find('/', start), name.size());
    const std::string_view part = name.substr(start, end - start);
    if (part.empty() || part == "." || part == ".." || part.size() > 255) return false;
    start = end + 1;
  }
  return true;
}

}  // namespace

std::string StagePlan::FinalPath(const StagedFile& file) const {
  return StrCat(directory_, "/", file.name);
}
std::string StagePlan::DataPath(const StagedFile& file) const {
  return StrCat(directory_, "/", kStageFolder, "/", file.key, ".data");
}
std::string StagePlan::MapPath(const StagedFile& file) const {
  return StrCat(directory_, "/", kStageFolder, "/", file.key, ".map");
}

Status StagePlan::ListSource(const Storage& source, const std::string& prefix,
                             std::int64_t part_bytes) {
  return source.List(prefix, [&](const ObjectInfo& object) -> Status {
    if (!object.url.starts_with(prefix)) {
      return InvalidArgumentError(source.name(), " names what lies below ", prefix, " ", object.url,
                                  "; write the prefix as it does");
    }
    if (object.size_bytes < 0 || object.size_bytes > kMaxObjectBytes ||
        report.bytes > kMaxObjectBytes) {
      return InvalidArgumentError(source.name(), " states that ", object.url, " has ",
                                  object.size_bytes, " bytes, after ", report.bytes,
                                  " of others; at most 2^50 can be staged");
    }
    std::string_view name = std::string_view(object.url).substr(prefix.size());
    if (name.empty()) {
      name = std::string_view(object.url).substr(object.url.rfind('/') + 1);
    } else if (!prefix.empty() && !prefix.ends_with('/')) {
      if (name.front() != '/') return OkStatus();  // a neighbour, such as train2 of train
      name.remove_prefix(1);
    }
    // Object stores keep folders as empty objects.
    if ((name.empty() || name.ends_with('/')) && object.size_bytes == 0) return OkStatus();
    StagedFile file = {.name = std::string(name),
                       .url = object.url,
                       .version = object.version,
                       .size_bytes = object.size_bytes};
    file.part_bytes =
        std::max(part_bytes, RoundUp((object.size_bytes + kMaxParts - 1) / kMaxParts, kPage));
    file.header = {.part_bytes = file.part_bytes,
                   .length_bytes = file.size_bytes,
                   .object_bytes = file.size_bytes};
    file.crcs.resize(static_cast<std::size_t>(file.header.parts()));
    file.have.resize(file.crcs.size());
    AIT_ASSIGN_OR_RETURN(file.header.key,
                         MakeCacheKey({"ait stage 1", file.name, file.url, file.version},
                                      {file.size_bytes, file.part_bytes}));
    file.key = HexName(file.header.key);
    report.bytes += file.size_bytes;
    ++report.files;
    files.push_back(std::move(file));
    return OkStatus();
  });
}

Status StagePlan::CheckNames() const {
  std::unordered_set<std::string_view> names;
  for (const StagedFile& file : files) {
    const std::string_view first = std::string_view(file.name).substr(0, file.name.find('/'));
    if (!IsPlainName(file.name) || first == kStageFolder || first == kStageManifest) {
      return InvalidArgumentError("object ", file.url, " cannot be a file of ", directory_,
                                  ": its name there would be \"", file.name, "\"");
    }
    if (!names.insert(file.name).second) {
      return InvalidArgumentError("two objects would be the file ", file.name, "; one is ",
                                  file.url);
    }
  }
  for (const StagedFile& file : files) {
    for (std::size_t slash = file.name.find('/'); slash != std::string::npos;
         slash = file.name.find('/', slash + 1)) {
      if (names.contains(std::string_view(file.name).substr(0, slash))) {
        return InvalidArgumentError(
            "object ", file.url,
            " needs a folder where another is a file: ", file.name.substr(0, slash));
      }
    }
  }
  return OkStatus();
}

void StagePlan::LookUp(StagedFile& file, const StagedFile* listed) const {
  using State = StagedFile::State;
  const bool is_named = SizeOf(FinalPath(file)) == file.size_bytes;
  // Without a version a file that was finished may be an old one.
  if (listed != nullptr && is_named && !file.version.empty() && listed->version == file.version &&
      listed->size_bytes == file.size_bytes && listed->part_bytes == file.part_bytes) {
    file.state = State::kFinished;
    file.crcs = listed->crcs;
    std::ranges::fill(file.have, std::uint8_t{1});
    return;
  }
  const FileDescriptor map(::open(MapPath(file).c_str(), O_RDONLY | O_CLOEXEC));
  if (!map.is_open() || file.version.empty()) return;
  const StatusOr<PartMapHeader> found = ReadHeader(map.get());
  if (!found.ok() || !found->IsSame(file.header)) return;
  const bool has_data = SizeOf(DataPath(file)) == file.size_bytes;
  if (!has_data && !is_named) return;
  bool is_complete = true;
  for (int part = 0; part < file.parts(); ++part) {
    const auto slot = ReadSlot(map.get(), *found, part);
    const bool is_there = slot.ok() && slot->has_value();
    if (is_there) file.crcs[static_cast<std::size_t>(part)] = **slot;
    file.have[static_cast<std::size_t>(part)] = is_there ? 1 : 0;
    is_complete = is_complete && is_there;
  }
  if (has_data || is_complete) {
    file.header = *found;
    file.state = has_data ? State::kPartial : State::kUnlisted;
  } else {
    std::ranges::fill(file.have, std::uint8_t{0});
  }
}

StatusOr<StagePlan> StagePlan::Make(const Storage& source, const std::string& prefix,
                                    const StageOptions& options) {
  StagePlan plan(options.directory);
  AIT_RETURN_IF_ERROR(plan.ListSource(source, prefix, options.part_bytes));
  AIT_RETURN_IF_ERROR(plan.CheckNames());
  if (plan.files.empty()) return NotFoundError("there is nothing to stage below ", prefix);

  std::vector<StagedFile> listed;
  const std::string manifest = StrCat(options.directory, "/", kStageManifest);
  if (const auto text = ReadSmallFile(manifest, kMaxManifestBytes); text.ok()) {
    // A damaged one has no say: the files are copied again.
    if (auto read = StagedFromJson(*text); read.ok()) listed = *std::move(read);
  }
  std::unordered_map<std::string_view, const StagedFile*> by_name;
  for (const StagedFile& file : listed) by_name[file.name] = &file;
  std::unordered_set<std::string_view> names;
  for (const StagedFile& file : plan.files) names.insert(file.name);
  for (const StagedFile& file : listed) {
    // Staged from elsewhere, or gone from the source: it stays, and so does what is known of it.
    if (!names.contains(file.name) && IsPlainName(file.name) &&
        SizeOf(plan.FinalPath(file)) == file.size_bytes) {
      plan.others.push_back(file);
    }
  }
  for (StagedFile& file : plan.files) {
    const auto found = by_name.find(file.name);
    plan.LookUp(file, found == by_name.end() ? nullptr : found->second);
    const bool is_finished = file.state == StagedFile::State::kFinished;
    if (is_finished) ++plan.report.found_files;
    for (int part = 0; part < file.parts(); ++part) {
      std::int64_t& bytes = file.have[static_cast<std::size_t>(part)] == 0
                                ? plan.report.copied_bytes
                                : plan.report.resumed_bytes;
      if (!is_finished) bytes += file.PartLength(part);
    }
  }
  return plan;
}

}  // namespace internal
}  // namespace ait::inline v0

// SPDX-License-Identifier: Apache-2.0
#include "ait/data/cache/stage.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <unordered_set>

#include "ait/base/durable_file.h"
#include "base/file_descriptor.h"
#include "data/cache/file_io_internal.h"
#include "data/cache/stage_files_internal.h"

namespace ait::inline v0 {
namespace {

using internal::FileDescriptor;
using internal::StagedFile;
using internal::StagePlan;

Status CheckOptions(const StageOptions& options) {
  if (options.directory.empty()) return InvalidArgumentError("no directory to stage to");
  if (options.threads < 1 || options.threads > 1024) {
    return InvalidArgumentError("staging by ", options.threads, " threads; give 1 to 1024");
  }
  if (options.part_bytes < 4096 || options.part_bytes > (std::int64_t{1} << 30) ||
      options.part_bytes % 4096 != 0) {
    return InvalidArgumentError("staging in parts of ", options.part_bytes,
                                " bytes; give a multiple of 4096 up to 2^30");
  }
  return OkStatus();
}

// A directory within the source would become part of it, and of itself with the next call.
Status CheckNotInSource(std::string_view prefix, const std::string& directory) {
  namespace fs = std::filesystem;
  if (prefix.starts_with("file://")) prefix.remove_prefix(7);
  std::error_code error;
  if (prefix.empty() || !fs::is_directory(fs::path(prefix), error)) return OkStatus();
  const fs::path source = fs::canonical(fs::path(prefix), error);
  if (error) return OkStatus();  // who lists it meets the error again
  const fs::path target = fs::weakly_canonical(fs::absolute(directory, error), error);
  for (fs::path above = target; !error; above = above.parent_path()) {
    if (above == source) {
      return InvalidArgumentError("the directory ", directory, " to stage to is ",
                                  target == source ? "where the source lies" : "below the source",
                                  ", ", source.string(), "; choose another");
    }
    if (!above.has_relative_path()) break;
  }
  return OkStatus();
}

// Free bytes of the directory, or of the nearest one above it that exists.
StatusOr<std::int64_t> FreeBytesFor(std::string directory) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::absolute(directory, error);
  while (!error && !std::filesystem::exists(path, error) && path.has_relative_path()) {
    path = path.parent_path();
  }
  return internal::FreeBytesAt(path.string());
}

// Of versions that the source no longer has, or that nobody goes on with.
void RemoveStale(const std::string& folder, const StagePlan& plan) {
  std::unordered_set<std::string_view> keys;
  for (const StagedFile& file : plan.files) keys.insert(file.key);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    const std::size_t dot = name.find('.');
    const bool is_ours = dot == 64 && (name.ends_with(".data") || name.ends_with(".map"));
    if (is_ours && !keys.contains(std::string_view(name).substr(0, dot))) {
      std::filesystem::remove(entry.path(), error);
    }
  }
}

}  // namespace

StatusOr<StageReport> Stage(const Storage& source, const std::string& prefix,
                            const StageOptions& options) {
  AIT_RETURN_IF_ERROR(CheckOptions(options));
  AIT_RETURN_IF_ERROR(CheckNotInSource(prefix, options.directory));
  const bool is_plan = options.action == StageAction::kPlan;
  FileDescriptor directory;
  const std::string folder = StrCat(options.directory, "/", internal::kStageFolder);
  if (!is_plan) {
    AIT_RETURN_IF_ERROR(MakeDirectoryDurably(options.directory));
    directory =
        FileDescriptor(::open(options.directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory.is_open()) return ErrnoError(errno, "cannot open ", options.directory);
    // File systems without locks say so; then two at once are the user's care.
    if (::flock(directory.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
      return FailedPreconditionError("another process stages to ", options.directory,
                                     "; wait for it to end, or choose another directory");
    }
  }
  AIT_ASSIGN_OR_RETURN(StagePlan plan, StagePlan::Make(source, prefix, options));
  if (!is_plan) RemoveStale(folder, plan);
  AIT_ASSIGN_OR_RETURN(plan.report.free_bytes, FreeBytesFor(options.directory));
  // What is copied, a block for the end of each file, and its map.
  std::int64_t needed = 0;
  for (const StagedFile& file : plan.files) {
    if (file.state == StagedFile::State::kNew) needed += file.size_bytes;
    if (file.state != StagedFile::State::kFinished) needed += 4096 + file.header.data_offset();
  }
  if (needed > plan.report.free_bytes) {
    return ResourceExhaustedError("staging ", prefix, " to ", options.directory, " needs ", needed,
                                  " bytes more, free are ", plan.report.free_bytes,
                                  "; make room, or stage less");
  }
  if (is_plan) return plan.report;

  if (::mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) {
    return ErrnoError(errno, "cannot make directory ", folder);
  }
  AIT_RETURN_IF_ERROR(internal::RunStage(source, options, plan));
  AIT_RETURN_IF_ERROR(WriteFileDurably(StrCat(options.directory, "/", internal::kStageManifest),
                                       internal::StagedToJson(plan.files, plan.others)));
  for (const StagedFile& file : plan.files) ::unlink(plan.MapPath(file).c_str());
  ::rmdir(folder.c_str());
  return plan.report;
}

}  // namespace ait::inline v0

// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "ait/data/loader/bad_samples.h"

namespace ait::inline v0 {
namespace {

/// The lock of a file, while it lives. File systems without locks say so; then ranks that write at
/// the same moment are the user's care.
class FileLock {
 public:
  explicit FileLock(int file) : file_(file) {
    while (::flock(file_, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  ~FileLock() { ::flock(file_, LOCK_UN); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  int file_;
};

StatusOr<std::string> ReadAll(int file, const std::string& path) {
  std::string text;
  char block[16384];
  while (true) {
    const ssize_t got = ::pread(file, block, sizeof(block), static_cast<off_t>(text.size()));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoError(errno, "cannot read the list of bad samples ", path);
    if (got == 0) return text;
    text.append(block, static_cast<std::size_t>(got));
  }
}

/// The whole lines of `text`. `end` is where the last of them ends.
StatusOr<std::vector<BadSample>> Parse(std::string_view text, const std::string& path,
                                       std::size_t& end) {
  std::vector<BadSample> list;
  end = 0;
  for (std::size_t newline = text.find('\n'); newline != std::string_view::npos;
       newline = text.find('\n', end)) {
    StatusOr<BadSample> sample = BadSampleFromJson(text.substr(end, newline - end));
    if (!sample.ok()) {
      return DataLossError("line ", list.size() + 1, " of ", path, ": ", Message(sample.status()));
    }
    list.push_back(*std::move(sample));
    end = newline + 1;
  }
  return list;
}

/// Cuts off what follows the last newline: the line of a process that was killed.
Status CutTornLine(int file, const std::string& path) {
  struct stat info{};
  if (::fstat(file, &info) != 0) return ErrnoError(errno, "cannot look at ", path);
  off_t end = info.st_size;
  char byte = 0;
  while (end > 0) {
    const ssize_t got = ::pread(file, &byte, 1, end - 1);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoError(errno, "cannot read ", path);
    if (got == 0 || byte == '\n') break;
    --end;
  }
  if (end < info.st_size && ::ftruncate(file, end) != 0) {
    return ErrnoError(errno, "cannot cut the torn last line of ", path);
  }
  return OkStatus();
}

}  // namespace

BadSampleLog::Place BadSampleLog::PlaceOf(const BadSample& sample) {
  return {sample.source_digest, sample.id, sample.epoch, sample.position, sample.attempt};
}

StatusOr<BadSampleLog> BadSampleLog::Open(std::string path) {
  BadSampleLog log(std::move(path));
  log.file_ = ::open(log.path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (log.file_ < 0) return ErrnoError(errno, "cannot open the list of bad samples ", log.path_);
  const FileLock lock(log.file_);
  AIT_RETURN_IF_ERROR(CutTornLine(log.file_, log.path_));
  AIT_ASSIGN_OR_RETURN(const std::string text, ReadAll(log.file_, log.path_));
  std::size_t end = 0;
  AIT_ASSIGN_OR_RETURN(const std::vector<BadSample> list, Parse(text, log.path_, end));
  for (const BadSample& sample : list) log.written_.insert(PlaceOf(sample));
  return log;
}

BadSampleLog::BadSampleLog(BadSampleLog&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      written_(std::move(other.written_)) {}

BadSampleLog& BadSampleLog::operator=(BadSampleLog&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  std::swap(written_, other.written_);
  return *this;
}

BadSampleLog::~BadSampleLog() {
  if (file_ >= 0) ::close(file_);
}

Status BadSampleLog::Append(const BadSample& sample) {
  const Place place = PlaceOf(sample);
  if (written_.contains(place)) return OkStatus();
  const std::string line = ToJson(sample) + "\n";
  const FileLock lock(file_);
  AIT_RETURN_IF_ERROR(CutTornLine(file_, path_));
  const off_t before = ::lseek(file_, 0, SEEK_END);
  ssize_t written = -1;
  do {
    written = ::write(file_, line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written != static_cast<ssize_t>(line.size())) {
    // A short write means that the disk or a limit is full. The next writer cuts what cannot be
    // taken back here.
    const int error = written < 0 ? errno : ENOSPC;
    if (written > 0 && before >= 0) static_cast<void>(::ftruncate(file_, before) == 0);
    return ErrnoError(error, "cannot append bad sample ", sample.id, " to ", path_);
  }
  if (::fdatasync(file_) != 0 && errno != EINVAL && errno != EROFS) {
    return ErrnoError(errno, "cannot bring a line of ", path_, " to the disk");
  }
  written_.insert(place);
  return OkStatus();
}

StatusOr<std::vector<BadSample>> ReadBadSampleLog(const std::string& path) {
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return ErrnoError(errno, "cannot open the list of bad samples ", path);
  const StatusOr<std::string> text = ReadAll(file, path);
  ::close(file);
  if (!text.ok()) return text.status();
  std::size_t end = 0;
  return Parse(*text, path, end);
}

}  // namespace ait::inline v0

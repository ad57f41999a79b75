// SPDX-License-Identifier: Apache-2.0
#include "ait/observe/metrics_log.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <fstream>
#include <utility>

namespace ait::inline v0 {
namespace {

/// Cuts the file after its last newline.
Status CutTornLine(int file, const std::string& path) {
  struct stat info{};
  if (::fstat(file, &info) != 0) return ErrnoError(errno, "cannot look at ", path);
  std::array<char, 4096> block{};
  off_t end = info.st_size;  // what follows is torn
  while (end > 0) {
    const off_t begin = std::max<off_t>(0, end - static_cast<off_t>(block.size()));
    const auto length = static_cast<std::size_t>(end - begin);
    const ssize_t got = ::pread(file, block.data(), length, begin);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return ErrnoError(errno, "cannot read ", path);
    if (static_cast<std::size_t>(got) != length)
      return UnavailableError(path, " is being changed by somebody else");
    const auto newline = std::find(block.rend() - got, block.rend(), '\n');
    end = begin + (block.rend() - newline);
    if (newline != block.rend()) break;
  }
  if (end < info.st_size && ::ftruncate(file, end) != 0)
    return ErrnoError(errno, "cannot cut the torn last line of ", path);
  return OkStatus();
}

}  // namespace

StatusOr<MetricsLog> MetricsLog::Open(std::string path) {
  const int file = ::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (file < 0) return ErrnoError(errno, "cannot open the metrics log ", path);
  MetricsLog log(std::move(path), file);
  if (::flock(file, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    return FailedPreconditionError("the metrics log ", log.path_,
                                   " is open in another run; give each run its own directory");
  }
  AIT_RETURN_IF_ERROR(CutTornLine(file, log.path_));
  return log;
}

MetricsLog::MetricsLog(MetricsLog&& other) noexcept
    : path_(std::move(other.path_)),
      file_(std::exchange(other.file_, -1)),
      is_torn_(other.is_torn_) {}

MetricsLog& MetricsLog::operator=(MetricsLog&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(file_, other.file_);
  std::swap(is_torn_, other.is_torn_);
  return *this;
}

MetricsLog::~MetricsLog() {
  if (file_ >= 0) ::close(file_);
}

Status MetricsLog::Append(const StepMetrics& metrics) {
  if (is_torn_) {
    AIT_RETURN_IF_ERROR(
        Annotate(CutTornLine(file_, path_), StrCat("cannot append step ", metrics.step)));
    is_torn_ = false;
  }
  const std::string line = ToJson(metrics) + "\n";
  const off_t before = ::lseek(file_, 0, SEEK_END);
  ssize_t written = -1;
  do {
    written = ::write(file_, line.data(), line.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(line.size())) return OkStatus();
  // A short write means that the disk or a limit is full: the next byte would have failed.
  const int error = written < 0 ? errno : ENOSPC;
  is_torn_ = written > 0 && (before < 0 || ::ftruncate(file_, before) != 0);
  return ErrnoError(error, "cannot append step ", metrics.step, " to ", path_,
                    is_torn_ ? " (its last line is torn)" : " (the lines before it are whole)");
}

StatusOr<std::vector<StepMetrics>> ReadMetricsLog(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return ErrnoError(errno, "cannot open the metrics log ", path);
  std::vector<StepMetrics> steps;
  for (std::string line; std::getline(file, line);) {
    if (file.eof()) break;  // no newline: torn
    StatusOr<StepMetrics> step = StepMetricsFromJson(line);
    if (!step.ok()) return Annotate(step.status(), StrCat("line ", steps.size() + 1, " of ", path));
    steps.push_back(*std::move(step));
  }
  if (file.bad()) {
    return ErrnoError(errno, "cannot read line ", steps.size() + 1, " of the metrics log ", path);
  }
  return steps;
}

}  // namespace ait::inline v0

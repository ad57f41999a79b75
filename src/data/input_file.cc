// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "ait/data/crc32c.h"
#include "data/input_file_internal.h"
#include "data/storage/local_file_internal.h"

namespace ait::inline v0 {
namespace internal {

StatusOr<InputFile> InputFile::Open(const std::string& path) {
  // O_NONBLOCK, so that opening a pipe by mistake does not wait for its writer.
  FileDescriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (!fd.is_open()) return ErrnoError(errno, "cannot open ", path);
  struct stat info;
  if (::fstat(fd.get(), &info) != 0) return ErrnoError(errno, "cannot stat ", path);
  if (!S_ISREG(info.st_mode)) return InvalidArgumentError(path, " is not a regular file");
  return InputFile(path, std::move(fd), info.st_size);
}

StatusOr<std::string> InputFile::Version() const {
  struct stat info;
  if (::fstat(fd_.get(), &info) != 0) return ErrnoError(errno, "cannot stat ", path_);
  AIT_ASSIGN_OR_RETURN(ObjectInfo object, InfoOf(path_, path_, info));
  return std::move(object.version);
}

Status InputFile::ReadAt(std::int64_t offset_bytes, std::span<std::byte> out) const {
  while (!out.empty()) {
    const ssize_t count = ::pread(fd_.get(), out.data(), out.size(), offset_bytes);
    if (count < 0) {
      if (errno == EINTR) continue;
      return ErrnoError(errno, "cannot read ", out.size(), " bytes at offset ", offset_bytes,
                        " of ", path_);
    }
    if (count == 0) {
      return DataLossError(path_, " ends at byte ", offset_bytes, ", ", out.size(),
                           " bytes too early; it had ", size_bytes_, " bytes when it was opened");
    }
    offset_bytes += count;
    out = out.subspan(static_cast<std::size_t>(count));
  }
  return OkStatus();
}

StatusOr<std::uint32_t> Crc32cOfFile(const InputFile& file, std::int64_t offset_bytes,
                                     std::int64_t length_bytes) {
  constexpr std::int64_t kChunk = 1 << 18;
  std::vector<std::byte> buffer(static_cast<std::size_t>(std::min(length_bytes, kChunk)));
  std::uint32_t crc = 0;
  while (length_bytes > 0) {
    const auto chunk =
        std::span(buffer).first(static_cast<std::size_t>(std::min(length_bytes, kChunk)));
    AIT_RETURN_IF_ERROR(file.ReadAt(offset_bytes, chunk));
    crc = Crc32c(chunk, crc);
    offset_bytes += static_cast<std::int64_t>(chunk.size());
    length_bytes -= static_cast<std::int64_t>(chunk.size());
  }
  return crc;
}

StatusOr<std::string> ReadSmallFile(const std::string& path, std::int64_t limit_bytes) {
  AIT_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  if (file.size_bytes() > limit_bytes) {
    return InvalidArgumentError(path, " has ", file.size_bytes(), " bytes, more than the ",
                                limit_bytes, " that such a file may have");
  }
  std::string text(static_cast<std::size_t>(file.size_bytes()), '\0');
  AIT_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace internal
}  // namespace ait::inline v0

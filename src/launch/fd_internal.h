// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_LAUNCH_FD_INTERNAL_H_
#define AIT_LAUNCH_FD_INTERNAL_H_

// Descriptors of a launcher. All of them are numbered from 10 up: a child is given its descriptors
// at 0 to 3 by dup2, which must not hit one that is still to be placed.

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <string_view>
#include <utility>

#include "ait/base/status.h"
#include "base/file_descriptor.h"

namespace ait::inline v0::internal {

/// Takes over `fd` and moves it to 10 or above, closed on exec. -1 is the error in errno.
inline StatusOr<FileDescriptor> Adopt(int fd, std::string_view what) {
  if (fd < 0) return ErrnoError(errno, "cannot open ", what);
  const FileDescriptor low(fd);
  FileDescriptor high(fcntl(fd, F_DUPFD_CLOEXEC, 10));
  if (!high.is_open()) {
    return ErrnoError(errno, "cannot open ", what, "; `ulimit -n` is the limit of descriptors");
  }
  return high;
}

struct Pipe {
  FileDescriptor read, write;
};

inline StatusOr<Pipe> MakePipe() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) {
    return ErrnoError(errno, "cannot make a pipe; `ulimit -n` is the limit of descriptors");
  }
  auto read = Adopt(ends[0], "a pipe");
  auto write = Adopt(ends[1], "a pipe");
  AIT_RETURN_IF_ERROR(read.status());
  AIT_RETURN_IF_ERROR(write.status());
  return Pipe{*std::move(read), *std::move(write)};
}

inline void SetNonBlocking(const FileDescriptor& fd) {
  fcntl(fd.get(), F_SETFL, fcntl(fd.get(), F_GETFL) | O_NONBLOCK);
}

}  // namespace ait::inline v0::internal

#endif  // AIT_LAUNCH_FD_INTERNAL_H_

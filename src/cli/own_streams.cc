// SPDX-License-Identifier: Apache-2.0
#include "cli/own_streams.h"

#include <poll.h>
#include <unistd.h>

#include <cerrno>

#include "ait/base/status.h"

namespace ait::cli {

void OwnStreams::Write(RankStream stream, std::string_view text) {
  const int fd = stream == RankStream::kOutput ? STDOUT_FILENO : STDERR_FILENO;
  while (!text.empty() && !failed_[static_cast<int>(stream)]) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<std::size_t>(n));
    } else if (errno == EAGAIN) {
      pollfd room = {.fd = fd, .events = POLLOUT, .revents = 0};
      poll(&room, 1, -1);
    } else if (errno != EINTR) {
      Fail(stream, errno);
    }
  }
}

void OwnStreams::Fail(RankStream stream, int error_number) {
  failed_[static_cast<int>(stream)] = true;
  if (error_number == EPIPE) {
    on_closed_();
  } else if (stream == RankStream::kOutput) {
    const Status status = ErrnoError(error_number, "ait run: cannot write to standard output");
    Write(RankStream::kError, StrCat(Message(status), "; the rest of it is lost\n"));
  }
}

}  // namespace ait::cli

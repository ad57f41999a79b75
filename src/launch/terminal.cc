// SPDX-License-Identifier: Apache-2.0
#include <stdlib.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>

#include "launch/terminal_internal.h"

namespace ait::inline v0::internal {

StatusOr<Pipe> MakeTerminal() {
  AIT_ASSIGN_OR_RETURN(FileDescriptor master,
                       Adopt(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC), "a pseudo-terminal"));
  char name[64];
  if (grantpt(master.get()) != 0 || unlockpt(master.get()) != 0 ||
      ptsname_r(master.get(), name, sizeof(name)) != 0) {
    return ErrnoError(errno, "cannot open a pseudo-terminal");
  }
  AIT_ASSIGN_OR_RETURN(FileDescriptor slave,
                       Adopt(open(name, O_RDWR | O_NOCTTY | O_CLOEXEC), name));
  termios settings = {};
  if (tcgetattr(slave.get(), &settings) == 0) {
    cfmakeraw(&settings);  // no carriage return before a newline, no echo
    tcsetattr(slave.get(), TCSANOW, &settings);
  }
  winsize size = {};
  if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0) ioctl(slave.get(), TIOCSWINSZ, &size);
  return Pipe{std::move(master), std::move(slave)};
}

}  // namespace ait::inline v0::internal

// SPDX-License-Identifier: Apache-2.0
// process_guard PARENT KEEP PROGRAM [ARGS...]: becomes PROGRAM with the descriptors below KEEP, to
// be killed when PARENT ends.
//
// posix_spawn can ask for neither; a test that is killed (by a time-out of ctest, say) must not
// leave ranks behind.
#include <linux/close_range.h>
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

int main(int argc, char** argv) {
  if (argc < 4) return 2;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != std::atoi(argv[1])) return 127;  // it ended before the call above
  close_range(static_cast<unsigned>(std::atoi(argv[2])), ~0u, CLOSE_RANGE_CLOEXEC);
  execv(argv[3], argv + 3);
  std::perror(argv[3]);
  return 127;
}

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_SUPPORT_FORBIDDEN_CALLS_H_
#define AIT_TESTS_SUPPORT_FORBIDDEN_CALLS_H_

// A part of a test in a child process in which system calls are forbidden, as a container forbids
// them: by a seccomp filter that answers with an errno.
//
//   ExpectInChild({SYS_mbind, SYS_move_pages}, EPERM, [] { EXPECT_FALSE(ProbeNuma().bind.is_allowed); });
//
// The child is forked, so the calling process has no other threads. Needs no privilege.

#include <gtest/gtest.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <vector>

namespace ait::testing {

/// Makes the calls fail with `error_number` in the calling thread and its children, for ever.
inline bool ForbidCalls(const std::vector<long>& calls, int error_number) {
  std::vector<sock_filter> filter;
  filter.push_back(BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)));
  for (long call : calls) {
    filter.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1));
    filter.push_back(
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error_number)));
  }
  filter.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog program = {static_cast<unsigned short>(filter.size()), filter.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

/// Runs `function` in a forked child with the calls forbidden (if any) and fails the test if an
/// expectation in it fails, or the child dies.
template <typename Function>
void ExpectInChild(const std::vector<long>& forbidden, int error_number, Function function) {
  std::fflush(nullptr);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    EXPECT_TRUE(forbidden.empty() || ForbidCalls(forbidden, error_number)) << "no seccomp here";
    function();
    std::fflush(nullptr);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status)) << "the child was killed by signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0) << "expectations failed in the child; they are above";
}

}  // namespace ait::testing

#endif  // AIT_TESTS_SUPPORT_FORBIDDEN_CALLS_H_

// SPDX-License-Identifier: Apache-2.0
// The shared arena between processes: see memory_peer.cc for what the other side does.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>

#include "ait/memory/shared_arena.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::Process;
using ::ait::testing::StatusIs;

constexpr std::size_t kBlock = 4096;
constexpr int kFdThere = 9;

std::set<std::string> NamesInDevShm() {
  std::set<std::string> names;
  if (!std::filesystem::exists("/dev/shm")) return names;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    names.insert(entry.path().filename());
  }
  return names;
}

std::ptrdiff_t OpenFiles() {
  return std::distance(std::filesystem::directory_iterator("/proc/self/fd"),
                       std::filesystem::directory_iterator());
}

bool AllAre(const void* block, unsigned char value) {
  const auto* const bytes = static_cast<const unsigned char*>(block);
  return std::all_of(bytes, bytes + kBlock, [value](unsigned char b) { return b == value; });
}

class SharedArenaProcess : public ::testing::Test {
 protected:
  SharedArenaProcess()
      : arena_(SharedArena::Create({.capacity = MiB(2)}).value()),
        block_(arena_->Allocate(kBlock).value()),
        offset_(StrCat(arena_->OffsetOf(block_, kBlock).value())) {
    std::memset(block_, 7, kBlock);
  }

  std::shared_ptr<SharedArena> arena_;
  void* block_;
  std::string offset_;
};

TEST_F(SharedArenaProcess, AChildInheritsTheDescriptorAndWritesAreSeenBothWays) {
  Process peer = Process::Spawn({.program = AIT_TEST_MEMORY_PEER,
                                 .args = {"arena-attach", std::to_string(kFdThere), offset_},
                                 .descriptors = {{kFdThere, arena_->fd()}}});
  peer.ReadUntil("done");
  EXPECT_TRUE(AllAre(block_, 8));
}

TEST_F(SharedArenaProcess, ADescriptorSentOverASocketWorksToo) {
  int ends[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
  Process peer = Process::Spawn({.program = AIT_TEST_MEMORY_PEER,
                                 .args = {"arena-receive", std::to_string(kFdThere), offset_},
                                 .descriptors = {{kFdThere, ends[1]}}});
  char byte = 0;
  iovec data = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = arena_->fd();
  std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  ASSERT_EQ(sendmsg(ends[0], &message, 0), 1);
  peer.ReadUntil("done");
  EXPECT_TRUE(AllAre(block_, 8));
  close(ends[0]);
  close(ends[1]);
}

TEST_F(SharedArenaProcess, AKilledPeerHarmsNothingAndLeavesNothing) {
  const auto names = NamesInDevShm();
  const auto files = OpenFiles();
  {
    Process peer = Process::Spawn({.program = AIT_TEST_MEMORY_PEER,
                                   .args = {"arena-attach", std::to_string(kFdThere), offset_},
                                   .descriptors = {{kFdThere, arena_->fd()}}});
    peer.ReadUntil("done");
    peer.Signal(SIGKILL);
    EXPECT_EQ(peer.Wait().code, 128 + SIGKILL);
  }
  EXPECT_TRUE(AllAre(block_, 8));
  ASSERT_OK_AND_ASSIGN(void* const more, arena_->Allocate(kBlock));
  arena_->Deallocate(more, kBlock);
  EXPECT_EQ(OpenFiles(), files);
  EXPECT_EQ(NamesInDevShm(), names);
}

TEST_F(SharedArenaProcess, AKilledOwnerLeavesItsMemoryToThoseAttachedAndNoName) {
  const auto names = NamesInDevShm();
  Process owner = Process::Spawn({.program = AIT_TEST_MEMORY_PEER, .args = {"arena-own"}});
  const std::string output = owner.ReadUntil("\n");
  int fd_there = -1;
  long offset = -1;
  ASSERT_EQ(std::sscanf(output.c_str(), "fd %d offset %ld", &fd_there, &offset), 2) << output;
  EXPECT_EQ(offset, 128) << "behind a block of 100 bytes";
  const int fd = open(StrCat("/proc/", owner.pid(), "/fd/", fd_there).c_str(), O_RDWR | O_CLOEXEC);
  ASSERT_GE(fd, 0);
  ASSERT_OK_AND_ASSIGN(const SharedArenaView view, SharedArenaView::Attach(fd));
  close(fd);
  owner.Signal(SIGKILL);
  EXPECT_EQ(owner.Wait().code, 128 + SIGKILL);
  ASSERT_OK_AND_ASSIGN(void* const block, view.At(Bytes(offset), kBlock));
  EXPECT_TRUE(AllAre(block, 7));
  EXPECT_EQ(NamesInDevShm(), names);
}

TEST_F(SharedArenaProcess, AForkedChildDoesNotGetTheMapping) {
  Process peer = Process::Spawn({.program = AIT_TEST_MEMORY_PEER, .args = {"arena-fork"}});
  peer.ExpectExit(0, "the child has no mapping");
  EXPECT_THAT(peer.output(),
              ::testing::HasSubstr("FAILED_PRECONDITION: cannot allocate 4096 bytes from a shared "
                                   "arena that this process was forked from"));
}

TEST_F(SharedArenaProcess, EachLimitIsAnErrorAndNotASignal) {
  const auto expect = [](const char* limit, const char* reason) {
    Process peer =
        Process::Spawn({.program = AIT_TEST_MEMORY_PEER, .args = {"arena-limit", limit}});
    peer.ExpectExit(0, reason);
    EXPECT_THAT(peer.output(), ::testing::HasSubstr("RESOURCE_EXHAUSTED"));
    EXPECT_THAT(peer.output(), ::testing::Not(::testing::HasSubstr("leaks")));
  };
  expect("file-size", "raise it with ulimit -f");
  expect("addresses", "ulimit -v limits this");
  expect("files", "Too many open files");
}

}  // namespace
}  // namespace ait

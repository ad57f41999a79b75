// SPDX-License-Identifier: Apache-2.0
// memory_peer COMMAND [ARGUMENTS]: does in a process of its own what a test of memory asks for.
//
// heap-limit                   allocates 1 GiB where 256 MiB of addresses are left; prints the error
// heap-trim                    the same with 200 MiB where the heap keeps 150 of 256
// guard ACCESS                 touches what a guard page forbids
// pinned-limit                 locks 2 MiB where 1 MiB may be locked; prints the error
// static                       ends while static and thread-local buffers hold memory
// exec                         replaces itself while threads allocate; says what was left open
// arena-limit LIMIT            creates an arena of 64 MiB under a limit: file-size, addresses, files
// arena-fork                   whether a forked child has the mapping of its parent's arena
// arena-own                    creates an arena, fills a block with 7, prints "fd F offset O", sleeps
// arena-attach FD OFFSET       attaches, replaces 4096 times 7 by 8 at OFFSET, prints "done", sleeps
// arena-receive SOCKET OFFSET  the same, with the descriptor received over a socket
#include <dirent.h>
#include <linux/capability.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "ait/memory/buffer.h"
#include "ait/memory/guard.h"
#include "ait/memory/heap.h"
#include "ait/memory/limit.h"
#include "ait/memory/pinned.h"
#include "ait/memory/shared_arena.h"
#include "ait/memory/statistics.h"
#include "ait/memory/tracking.h"

namespace ait {
namespace {

constexpr std::size_t kBlock = 4096;

void Say(const std::string& text) {
  std::printf("%s\n", text.c_str());
  std::fflush(stdout);
}

/// Leaves this process `bytes` of addresses above what it has.
void LimitAddresses(std::size_t bytes) {
  std::size_t pages = 0;
  std::FILE* const file = std::fopen("/proc/self/statm", "r");
  if (std::fscanf(file, "%zu", &pages) != 1) std::exit(2);
  std::fclose(file);
  const rlimit limit = {pages * 4096 + bytes, RLIM_INFINITY};
  setrlimit(RLIMIT_AS, &limit);
}

int OpenFiles() {
  DIR* const folder = opendir("/proc/self/fd");
  int count = 0;
  while (readdir(folder) != nullptr) ++count;
  closedir(folder);
  return count;
}

int HeapLimit() {
  const auto heap = HeapResource::Create();
  LimitAddresses(std::size_t{256} << 20);
  const auto block = heap->Allocate(std::size_t{1} << 30);
  Say(block.status().ToString());
  const auto small = heap->Allocate(std::size_t{1} << 20);
  heap->Deallocate(small.value(), std::size_t{1} << 20);
  return block.ok() ? 1 : 0;
}

int HeapTrim() {
  const auto heap = HeapResource::Create();
  LimitAddresses(std::size_t{256} << 20);
  const std::size_t first = std::size_t{150} << 20;
  heap->Deallocate(heap->Allocate(first).value(), first);
  const auto second = heap->Allocate(std::size_t{200} << 20);
  Say(StrCat("kept ", heap->cached(), ", error ", static_cast<int>(second.status().code())));
  heap->Deallocate(second.value(), std::size_t{200} << 20);
  return 0;
}

int Guard(const std::string& access) {
  std::signal(SIGSEGV, SIG_DFL);  // not a sanitizer's report
  const bool before = access == "before";
  const auto memory =
      GuardResource::Create({.edge = before ? GuardedEdge::kBegin : GuardedEdge::kEnd,
                             .quarantine = access == "after-eviction" ? Bytes(0) : MiB(1)});
  constexpr std::size_t kBytes = 1024;
  volatile auto* const block = static_cast<volatile char*>(memory->Allocate(kBytes).value());
  Say("about to: " + access);
  if (access == "inside") block[0] = 1;
  if (access == "behind") block[kBytes] = 1;
  if (before) block[-1] = 1;
  memory->Deallocate(const_cast<char*>(block), kBytes);
  if (access.ends_with("after-free") || access == "after-eviction") {
    if (access.starts_with("read")) return block[0];
    block[0] = 1;
  }
  return static_cast<int>(memory->error_count());
}

/// The privilege to lock as much as one wants, if there is one, is given up.
int PinnedLimit() {
  __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
  __user_cap_data_struct data[2] = {};
  if (syscall(SYS_capget, &header, data) != 0) return 2;
  data[0].effective &= ~(1U << CAP_IPC_LOCK);
  if (syscall(SYS_capset, &header, data) != 0) return 2;
  const rlimit limit = {rlim_t{1} << 20, rlim_t{1} << 20};
  if (setrlimit(RLIMIT_MEMLOCK, &limit) != 0) return 2;
  const auto memory =
      PinnedResource::Create({.gpus = DeviceRuntime::Open({.library = "/nowhere"})}).value();
  constexpr std::size_t kBytes = std::size_t{2} << 20;
  const auto block = memory->Allocate(kBytes);
  Say(block.status().ToString());
  const auto small = memory->Allocate(kBytes / 4);
  if (!small.ok()) Say(small.status().ToString());
  if (small.ok()) memory->Deallocate(*small, kBytes / 4);
  return !block.ok() && small.ok() ? 0 : 1;
}

MemoryHandle Stack() {
  const auto tracking = TrackingResource::Create(HeapResource::Create(), {.stack_depth = 4});
  return StatisticsResource::Create(
      LimitResource::Create(tracking, {.limit = GiB(1), .tracking = tracking}).value());
}

std::vector<MemoryHandle> Resources() {
  return {HeapResource::Create(), GuardResource::Create(), Stack(),
          SharedArena::Create({.capacity = MiB(16)}).value()};
}

/// Of the calling thread; destroyed with it.
std::vector<HostBuffer>& OfThisThread() {
  static thread_local std::vector<HostBuffer> buffers;
  return buffers;
}

/// Some are freed after what they stand on was made, some before, some with a thread.
int Static() {
  static std::vector<HostBuffer> before;
  static const std::vector<MemoryHandle> resources = Resources();
  static std::vector<HostBuffer> after;
  const auto take = [](std::vector<HostBuffer>& buffers) {
    const MemoryLabel label("static");
    for (const MemoryHandle& memory : resources) {
      for (const std::size_t bytes : {100, 1 << 20}) {
        buffers.push_back(HostBuffer::Create(memory, bytes).value());
        buffers.back().Zero();
      }
    }
  };
  take(before);
  take(after);
  take(OfThisThread());
  std::vector<HostBuffer> of_other;
  std::thread([&] {
    take(OfThisThread());
    take(of_other);
  }).join();
  Say("main is over");
  return 0;
}

int Exec(char* program) {
  const std::vector<MemoryHandle> resources = Resources();
  for (int i = 0; i < 3; ++i) {
    std::thread([&resources] {
      while (true) {
        for (const MemoryHandle& memory : resources) HostBuffer::Create(memory, 300'000).value();
      }
    }).detach();
  }
  usleep(50'000);
  char after[] = "after-exec";
  char* const arguments[] = {program, after, nullptr};
  execv(program, arguments);
  return 1;
}

int ArenaLimit(const std::string& which) {
  const int before = OpenFiles();
  if (which == "addresses") LimitAddresses(std::size_t{32} << 20);
  // Standard input, output and error, and no more files.
  const bool size = which == "file-size";
  const auto kind = size ? RLIMIT_FSIZE : RLIMIT_NOFILE;
  rlimit old = {};
  getrlimit(kind, &old);
  const rlimit low = {size ? rlim_t{1} << 20 : rlim_t{3}, old.rlim_max};
  if (which != "addresses") setrlimit(kind, &low);
  const auto arena = SharedArena::Create({.capacity = MiB(64)});
  setrlimit(kind, &old);
  Say(arena.status().ToString());
  if (OpenFiles() != before) Say("leaks descriptors");
  return arena.ok() ? 1 : 0;
}

int ArenaFork() {
  const auto arena = SharedArena::Create({.capacity = MiB(1)}).value();
  void* const block = arena->Allocate(kBlock).value();
  std::memset(block, 7, kBlock);
  unsigned char resident = 0;
  const pid_t child = fork();
  if (child == 0) {
    arena->Deallocate(block, kBlock);
    Say(arena->Allocate(kBlock).status().ToString());
    _exit(mincore(block, kBlock, &resident) == 0 ? 1 : 0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  Say(WEXITSTATUS(status) == 0 ? "the child has no mapping" : "the child has the mapping");
  return mincore(block, kBlock, &resident) == 0 ? 0 : 1;
}

int ArenaOwn() {
  const auto arena = SharedArena::Create({.capacity = MiB(2)}).value();
  const auto first = arena->Allocate(100).value();
  void* const block = arena->Allocate(kBlock).value();
  std::memset(block, 7, kBlock);
  Say(StrCat("fd ", arena->fd(), " offset ", arena->OffsetOf(block, kBlock).value()));
  pause();
  arena->Deallocate(first, 100);
  return 0;
}

int Receive(int socket) {
  char byte = 0;
  iovec data = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  if (recvmsg(socket, &message, MSG_CMSG_CLOEXEC) != 1) std::exit(2);
  int fd = -1;
  std::memcpy(&fd, CMSG_DATA(CMSG_FIRSTHDR(&message)), sizeof(fd));
  return fd;
}

int ArenaAttach(int fd, std::int64_t offset) {
  const auto view = SharedArenaView::Attach(fd);
  if (!view.ok()) {
    Say(view.status().ToString());
    return 1;
  }
  close(fd);
  auto* const bytes = static_cast<unsigned char*>(view->At(Bytes(offset), kBlock).value());
  if (std::count(bytes, bytes + kBlock, 7) != static_cast<std::ptrdiff_t>(kBlock)) {
    Say("sees something else");
    return 1;
  }
  std::memset(bytes, 8, kBlock);
  Say("done");
  pause();
  return 0;
}

int Run(int argc, char** argv) {
  const std::string command = argc > 1 ? argv[1] : "";
  if (command == "heap-limit") return HeapLimit();
  if (command == "heap-trim") return HeapTrim();
  if (command == "pinned-limit") return PinnedLimit();
  if (command == "static") return Static();
  if (command == "exec") return Exec(argv[0]);
  if (command == "after-exec") {
    // ".", "..", standard input, output and error, and the folder that is read.
    Say(OpenFiles() == 6 ? "after exec: no descriptor" : "after exec: descriptors are left");
    return 0;
  }
  if (command == "guard" && argc > 2) return Guard(argv[2]);
  if (command == "arena-limit" && argc > 2) return ArenaLimit(argv[2]);
  if (command == "arena-fork") return ArenaFork();
  if (command == "arena-own") return ArenaOwn();
  if (command == "arena-attach" && argc > 3)
    return ArenaAttach(std::atoi(argv[2]), std::atol(argv[3]));
  if (command == "arena-receive" && argc > 3) {
    return ArenaAttach(Receive(std::atoi(argv[2])), std::atol(argv[3]));
  }
  return 2;
}

}  // namespace
}  // namespace ait

int main(int argc, char** argv) { return ait::Run(argc, argv); }

// SPDX-License-Identifier: Apache-2.0
// How ranks that only have a store in common come to share memory: rank 0 listens on an unnamed
// (abstract) socket, every rank hands in the descriptors of its arena and of its life, and gets those
// of all others. A number that was told over the socket must be found in the memory.
#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <climits>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <utility>

#include "comm/operation_compare.h"
#include "comm/shm_fabric.h"

namespace ait::inline v0 {

StatusOr<std::string> HostIdentity() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  char space[64] = {};
  const ssize_t length = readlink("/proc/self/ns/net", space, sizeof(space) - 1);
  if (!std::getline(file, boot) || boot.empty() || length <= 0) {
    return FailedPreconditionError(
        "/proc/sys/kernel/random/boot_id or /proc/self/ns/net cannot be read, so it cannot be "
        "proved that ranks share this host; mount /proc, or use another transport");
  }
  return StrCat("boot ", boot, ", ", space);
}

namespace internal {
namespace {

/// What a rank tells about itself; sent with the descriptors of its arena and of its life.
struct Hello {
  std::uint64_t token[2] = {};
  std::uint64_t nonce = 0;  // also at `nonce_offset` of its arena
  std::uint64_t nonce_offset = 0;
  std::int32_t rank = 0;
  std::int32_t size = 0;
  std::int32_t pid = 0;
  std::int32_t staging = 0;
};

struct Member {
  Hello hello;
  FileDescriptor arena;
  FileDescriptor life;
};

std::uint64_t RandomWord() {
  std::uint64_t word = 0;
  while (getrandom(&word, sizeof(word), 0) != sizeof(word) && errno == EINTR) {
  }
  return word;
}

sockaddr_un AbstractAddress(const std::string& name, socklen_t& length) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(),
              std::min(name.size(), sizeof(address.sun_path) - 1));
  length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

/// Waits until `fd` can be read; false at the deadline.
bool WaitReadable(int fd, Deadline deadline) {
  pollfd waiting = {.fd = fd, .events = POLLIN, .revents = 0};
  while (true) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining()).count();
    const int result = poll(&waiting, 1, static_cast<int>(std::min<std::int64_t>(left, INT_MAX)));
    if (result > 0) return true;
    if (result == 0 && deadline.expired()) return false;
    if (result < 0 && errno != EINTR) return true;  // the read that follows says what it is
  }
}

Status SendMember(int socket, const Hello& hello, int arena, int life) {
  iovec data = {.iov_base = const_cast<Hello*>(&hello), .iov_len = sizeof(hello)};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  cmsghdr* const header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(2 * sizeof(int));
  const int descriptors[2] = {arena, life};
  std::memcpy(CMSG_DATA(header), descriptors, sizeof(descriptors));
  while (sendmsg(socket, &message, MSG_NOSIGNAL) < 0) {
    if (errno != EINTR) return ErrnoError(errno, "passing the descriptors of shared memory");
  }
  return OkStatus();
}

StatusOr<Member> ReceiveMember(int socket, Deadline deadline) {
  if (!WaitReadable(socket, deadline)) {
    return DeadlineExceededError("the deadline passed while ranks exchanged their shared memory");
  }
  Member member;
  iovec data = {.iov_base = &member.hello, .iov_len = sizeof(member.hello)};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t bytes = recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  if (bytes < 0) return ErrnoError(errno, "receiving the descriptors of shared memory");
  const cmsghdr* const header = CMSG_FIRSTHDR(&message);
  if (header != nullptr && header->cmsg_type == SCM_RIGHTS &&
      header->cmsg_len == CMSG_LEN(2 * sizeof(int))) {
    int descriptors[2] = {-1, -1};
    std::memcpy(descriptors, CMSG_DATA(header), sizeof(descriptors));
    member.arena = FileDescriptor(descriptors[0]);
    member.life = FileDescriptor(descriptors[1]);
  }
  if (bytes != sizeof(member.hello) || !member.life.is_open()) {
    return UnavailableError("a rank closed the connection over which shared memory is passed");
  }
  return member;
}

/// A descriptor that becomes readable, for whoever holds a copy, when this process ends. Where the
/// kernel has no pidfd it is the end of a pipe whose other end is never closed.
StatusOr<FileDescriptor> OwnLife(FileDescriptor& kept) {
#ifdef SYS_pidfd_open
  if (const long fd = syscall(SYS_pidfd_open, getpid(), 0); fd >= 0) {
    return FileDescriptor(static_cast<int>(fd));
  }
#endif
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return ErrnoError(errno, "making a pipe");
  kept = FileDescriptor(ends[1]);
  return FileDescriptor(ends[0]);
}

/// Refuses ranks that are elsewhere; the same error on every rank.
Status CheckOneHost(Store& store, const std::string& key, Rank rank, WorldSize size,
                    Deadline deadline) {
  AIT_ASSIGN_OR_RETURN(const std::string own, HostIdentity());
  AIT_RETURN_IF_ERROR(store.Set(StrCat(key, "/host/", rank), own));
  const auto host_of = [&](int peer) -> StatusOr<std::string> {
    StatusOr<std::string> host = store.Get(StrCat(key, "/host/", peer), deadline);
    if (host.status().code() != StatusCode::kDeadlineExceeded) return host;
    return DeadlineExceededError("rank ", peer, " did not come to share memory by the deadline");
  };
  AIT_ASSIGN_OR_RETURN(const std::string first, host_of(0));
  std::vector<int> elsewhere;
  std::string example;
  for (int peer = 1; peer < size.value(); ++peer) {
    AIT_ASSIGN_OR_RETURN(const std::string host, host_of(peer));
    if (host == first) continue;
    elsewhere.push_back(peer);
    example = host;
  }
  if (elsewhere.empty()) return OkStatus();
  return FailedPreconditionError("shared memory joins ranks of one host, but ", RankList(elsewhere),
                                 " cannot reach the host of rank 0 (", first, ") from theirs (",
                                 example, "); use a transport between hosts, or Automatic()");
}

class Exchange {
 public:
  Exchange(Store& store, const std::string& key, Rank rank, WorldSize size, Deadline deadline)
      : store_(store), key_(key), rank_(rank.value()), size_(size.value()), deadline_(deadline) {}

  /// The descriptors of all ranks; the own ones are not in it.
  StatusOr<std::vector<Member>> Run(Hello hello, int arena, int life) {
    hello.rank = rank_;
    hello.size = size_;
    hello.pid = getpid();
    if (rank_ != 0) return Follow(hello, arena, life);
    StatusOr<std::vector<Member>> members = Lead(hello, arena, life);
    // The others see no more than a connection that closes.
    if (!members.ok()) store_.Set(StrCat(key_, "/failed"), Message(members.status())).IgnoreError();
    return members;
  }

 private:
  StatusOr<std::vector<Member>> Lead(Hello hello, int arena, int life) {
    FileDescriptor listener(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    std::array<std::uint64_t, 4> words = {RandomWord(), RandomWord(), RandomWord(), RandomWord()};
    const std::string name = StrCat("ait-", words[2], "-", words[3]);
    socklen_t length = 0;
    const sockaddr_un address = AbstractAddress(name, length);
    if (!listener.is_open() ||
        bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
        listen(listener.get(), size_) != 0) {
      return ErrnoError(errno, "listening on a local socket to pass shared memory");
    }
    std::copy_n(words.begin(), 2, hello.token);
    AIT_RETURN_IF_ERROR(
        store_.Set(StrCat(key_, "/socket"), StrCat(words[0], " ", words[1], " ", name)));
    std::vector<Member> members(static_cast<std::size_t>(size_));
    std::vector<FileDescriptor> sockets(members.size());
    for (int missing = size_ - 1; missing > 0;) {
      if (!WaitReadable(listener.get(), deadline_)) return DeadlineExceededError(Missing(sockets));
      FileDescriptor connection(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!connection.is_open()) continue;
      StatusOr<Member> member = ReceiveMember(connection.get(), deadline_);
      if (!member.ok()) continue;  // not one of ours, or it died: then it will be missing
      const Hello& peer = member->hello;
      if (std::memcmp(peer.token, hello.token, sizeof(peer.token)) != 0 || peer.size != size_ ||
          peer.rank < 1 || peer.rank >= size_) {
        continue;  // somebody else on this host
      }
      const auto at = static_cast<std::size_t>(peer.rank);
      if (peer.staging != hello.staging) {
        return InvalidArgumentError("SharedMemoryOptions.staging is ", hello.staging,
                                    " on rank 0 and ", peer.staging, " on rank ", peer.rank,
                                    "; it must be equal on all ranks");
      }
      if (!sockets[at].is_open()) --missing;
      sockets[at] = std::move(connection);
      members[at] = *std::move(member);
    }
    for (std::size_t to = 1; to < members.size(); ++to) {
      Status sent = SendMember(sockets[to].get(), hello, arena, life);
      for (std::size_t of = 1; of < members.size() && sent.ok(); ++of) {
        if (of == to) continue;
        sent = SendMember(sockets[to].get(), members[of].hello, members[of].arena.get(),
                          members[of].life.get());
      }
      if (!sent.ok()) return UnavailableError("rank ", to, " is gone: ", Message(sent));
    }
    return members;
  }

  StatusOr<std::vector<Member>> Follow(Hello hello, int arena, int life) {
    AIT_ASSIGN_OR_RETURN(const std::string text, store_.Get(StrCat(key_, "/socket"), deadline_));
    char* rest = nullptr;
    hello.token[0] = std::strtoull(text.c_str(), &rest, 10);
    hello.token[1] = std::strtoull(rest, &rest, 10);
    socklen_t length = 0;
    const sockaddr_un address = AbstractAddress(*rest == '\0' ? rest : rest + 1, length);
    FileDescriptor connection(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!connection.is_open() ||
        connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0) {
      return ErrnoError(errno, "rank ", rank_, ": reaching rank 0 over a local socket");
    }
    AIT_RETURN_IF_ERROR(SendMember(connection.get(), hello, arena, life));
    std::vector<Member> members(static_cast<std::size_t>(size_));
    for (int i = 1; i < size_; ++i) {
      StatusOr<Member> received = ReceiveMember(connection.get(), deadline_);
      if (!received.ok()) return WhyRankZeroFailed(received.status());
      Member member = *std::move(received);
      const int of = member.hello.rank;
      if (of < 0 || of >= size_ || of == rank_) {
        return InternalError("rank 0 passed the memory of rank ", of, " of ", size_);
      }
      members[static_cast<std::size_t>(of)] = std::move(member);
    }
    return members;
  }

  Status WhyRankZeroFailed(const Status& seen) {
    const auto why = store_.Get(StrCat(key_, "/failed"), Deadline::After(std::chrono::seconds(2)));
    if (why.ok()) return UnavailableError("rank 0 gave up: ", *why);
    return Annotate(seen, "rank 0 is gone");
  }

  std::string Missing(const std::vector<FileDescriptor>& sockets) const {
    std::vector<int> missing;
    for (int rank = 1; rank < size_; ++rank) {
      if (!sockets[static_cast<std::size_t>(rank)].is_open()) missing.push_back(rank);
    }
    return StrCat(RankList(missing), " did not come to share memory with rank 0 by the deadline");
  }

  Store& store_;
  const std::string& key_;
  const int rank_;
  const int size_;
  const Deadline deadline_;
};

}  // namespace

StatusOr<std::shared_ptr<ShmFabric>> ShmFabric::Join(Store& store, const std::string& key,
                                                     Rank rank, WorldSize size, Deadline deadline,
                                                     const SharedMemoryOptions& options) {
  AIT_RETURN_IF_ERROR(CheckSharedMemoryOptions(options));
  AIT_RETURN_IF_ERROR(CheckOneHost(store, key, rank, size, deadline));
  AIT_ASSIGN_OR_RETURN(std::shared_ptr<SharedArena> arena, CreateRankArena(options, size.value()));
  FileDescriptor kept;
  AIT_ASSIGN_OR_RETURN(const FileDescriptor life, OwnLife(kept));
  AIT_ASSIGN_OR_RETURN(void* const block, arena->Allocate(sizeof(std::uint64_t)));
  Hello hello;
  hello.nonce = RandomWord();
  hello.staging = static_cast<std::int32_t>(options.staging.value());
  std::memcpy(block, &hello.nonce, sizeof(hello.nonce));
  hello.nonce_offset = static_cast<std::uint64_t>(static_cast<std::byte*>(block) - arena->data());
  AIT_ASSIGN_OR_RETURN(
      std::vector<Member> members,
      Exchange(store, key, rank, size, deadline).Run(hello, arena->fd(), life.get()));

  std::vector<ShmPeer> peers(members.size());
  for (int peer = 0; peer < size.value(); ++peer) {
    ShmPeer& seen = peers[static_cast<std::size_t>(peer)];
    if (peer == rank.value()) {
      seen.pid = getpid();
      seen.life = std::move(kept);
      continue;
    }
    Member& member = members[static_cast<std::size_t>(peer)];
    seen.pid = member.hello.pid;
    seen.life = std::move(member.life);
    StatusOr<SharedArenaView> view = SharedArenaView::Attach(member.arena.get());
    if (!view.ok()) return Annotate(view.status(), StrCat("the arena of rank ", peer));
    const Bytes at(static_cast<std::int64_t>(member.hello.nonce_offset));
    const StatusOr<void*> word = view->At(at, sizeof(std::uint64_t));
    if (!word.ok() || std::memcmp(*word, &member.hello.nonce, sizeof(std::uint64_t)) != 0) {
      return FailedPreconditionError("the memory that rank ", peer,
                                     " passed is not the memory that it sees");
    }
    seen.view = *std::move(view);
  }
  return std::shared_ptr<ShmFabric>(
      new ShmFabric(rank.value(), std::move(peers), std::move(arena), options));
}

}  // namespace internal
}  // namespace ait::inline v0

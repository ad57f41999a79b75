// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_TCP_STORE_SOCKET_H_
#define AIT_COMM_TCP_STORE_SOCKET_H_

// Sockets of the control plane: listening, connecting with patience, and what to say when a port is
// taken. IPv4 and IPv6. Nothing here raises SIGPIPE, and no descriptor leaks into a child.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "ait/base/clock.h"
#include "ait/base/status.h"

namespace ait::inline v0::internal {

/// A file descriptor that is closed when it goes out of scope.
class SocketFd {
 public:
  SocketFd() = default;
  explicit SocketFd(int fd) : fd_(fd) {}
  SocketFd(SocketFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  SocketFd& operator=(SocketFd&& other) noexcept {
    if (this != &other) {
      Close();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~SocketFd() { Close(); }

  int get() const { return fd_; }
  bool open() const { return fd_ >= 0; }
  int Release() { return std::exchange(fd_, -1); }
  void Close();

 private:
  int fd_ = -1;
};

/// True if `host` says by its text that it is the loopback interface: "localhost", "::1", "127.…".
/// A name that this host alone takes for loopback (127.0.1.1 of Debian) is right elsewhere.
bool SaysLoopback(std::string_view host);

/// True if `host` names a socket of this host instead of an address: "unix:NAME". Such a socket has
/// no port and no file: the name lives in the network namespace and dies with the socket, and only
/// processes of the same user (or root) are let in.
bool SaysUnix(std::string_view host);

/// "10.0.0.1 port 29400", or "unix:NAME".
std::string ShowEndpoint(std::string_view host, std::uint16_t port);

/// OK if the process at the other end belongs to this user or to root; PermissionDenied names it.
/// OK too for a socket that is no "unix:" one.
Status CheckPeerUser(int fd);

/// A socket that listens at `port` (0: the system chooses): on the loopback interface if `host`
/// says so (`SaysLoopback`), else on all interfaces; at the name if it says that (`SaysUnix`).
/// **Errors.** FailedPrecondition: the port or name is in use; the text names the process that holds it
/// where the system tells.
StatusOr<SocketFd> Listen(const std::string& host, std::uint16_t port);

/// Takes over a socket that was inherited. FailedPrecondition if `fd` is no socket that listens; it
/// is then left alone.
StatusOr<SocketFd> AdoptListener(int fd);

/// The port that a bound socket has; 0 for a socket with a name.
StatusOr<std::uint16_t> LocalPort(int fd);

/// The numeric address of this end of a connected socket, such as "10.0.0.7"; "" if there is none.
std::string LocalAddress(int fd);

/// **Blocks.** One attempt at every address of `host`, at most until `deadline`; the resolver of
/// the system has its own time-outs (resolv.conf). A name that does not resolve is an error of the
/// attempt too: it may do so later.
StatusOr<SocketFd> ConnectOnce(const std::string& host, std::uint16_t port, Deadline deadline);

/// The address from which this host would send to `host`: what a peer there can reach. Sends
/// nothing. NotFound if the name does not resolve or no route leads there.
StatusOr<std::string> AddressTowards(const std::string& host, std::uint16_t port);

/// **Blocks.** Sends all of `bytes` on a non-blocking socket. DeadlineExceeded or Unavailable.
Status SendAll(int fd, std::string_view bytes, Deadline deadline);

/// The same; after an error `rest` is what was not sent.
Status SendRest(int fd, std::string_view& rest, Deadline deadline);

/// Waits until `fd` has one of `events`; false when the deadline expires first.
bool PollOne(int fd, short events, Deadline deadline);

/// Milliseconds until `deadline`, as poll wants them: rounded up, -1 for never.
int PollTimeout(Deadline deadline);

/// Sets what every connection of the store has: no delay, keep-alive (a host that lost power is
/// noticed after 25 s), non-blocking.
void PrepareConnection(int fd);

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_TCP_STORE_SOCKET_H_

// SPDX-License-Identifier: Apache-2.0
#include "comm/tcp_store_socket.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <sstream>
#include <vector>

namespace ait::inline v0::internal {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

StatusOr<AddressList> Resolve(const std::string& host, std::uint16_t port, int socket_type) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = socket_type;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int error = getaddrinfo(host.c_str(), StrCat(port).c_str(), &hints, &found);
  if (error != 0) {
    return NotFoundError("the name ", host, " does not resolve: ",
                         error == EAI_SYSTEM ? std::strerror(errno) : gai_strerror(error));
  }
  return AddressList(found, &freeaddrinfo);
}

std::string NumericAddress(const sockaddr* address, socklen_t length) {
  char text[NI_MAXHOST];
  if (getnameinfo(address, length, text, sizeof(text), nullptr, 0, NI_NUMERICHOST) != 0) return "";
  const std::string_view mapped = "::ffff:";  // IPv4 that came in on an IPv6 socket
  std::string_view result = text;
  if (result.substr(0, mapped.size()) == mapped && result.find('.') != std::string_view::npos) {
    result.remove_prefix(mapped.size());
  }
  return std::string(result);
}

// The inode of the socket that listens at `port`, from one of the kernel's tables; 0 if none does.
// Fields: "sl local_address rem_address st tx:rx tr:tm retrnsmt uid timeout inode …", state 0A
// listens.
unsigned long ListeningInode(const char* table, std::uint16_t port) {
  std::ifstream file(table);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string slot, local, remote, state, skip;
    unsigned long inode = 0;
    fields >> slot >> local >> remote >> state >> skip >> skip >> skip >> skip >> skip >> inode;
    const std::size_t colon = local.rfind(':');
    if (!fields || state != "0A" || colon == std::string::npos) continue;
    if (std::strtoul(local.c_str() + colon + 1, nullptr, 16) == port) return inode;
  }
  return 0;
}

bool HoldsSocket(const std::string& process, const std::string& link) {
  DIR* descriptors = opendir(StrCat("/proc/", process, "/fd").c_str());
  if (descriptors == nullptr) return false;
  bool found = false;
  while (const dirent* entry = readdir(descriptors)) {
    char target[64];
    const ssize_t length =
        readlink(StrCat("/proc/", process, "/fd/", entry->d_name).c_str(), target, sizeof(target));
    if (length > 0 && link == std::string_view(target, static_cast<std::size_t>(length))) {
      found = true;
      break;
    }
  }
  closedir(descriptors);
  return found;
}

// " by pid 12 (nginx)", or "" where the system does not tell (another user's process).
std::string HolderOf(std::uint16_t port) {
  unsigned long inode = ListeningInode("/proc/net/tcp", port);
  if (inode == 0) inode = ListeningInode("/proc/net/tcp6", port);
  if (inode == 0) return "";
  const std::string link = StrCat("socket:[", inode, "]");
  DIR* processes = opendir("/proc");
  if (processes == nullptr) return "";
  std::string holder;
  while (const dirent* entry = readdir(processes)) {
    const std::string process = entry->d_name;
    if (process.find_first_not_of("0123456789") != std::string::npos) continue;
    if (!HoldsSocket(process, link)) continue;
    std::ifstream file(StrCat("/proc/", process, "/comm"));
    std::string name;
    std::getline(file, name);
    holder = StrCat(" by pid ", process, " (", name, ")");
    break;
  }
  closedir(processes);
  return holder;
}

StatusOr<SocketFd> BindAndListen(const sockaddr* address, socklen_t length, std::uint16_t port) {
  SocketFd fd(socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.open()) return ErrnoError(errno, "cannot make a socket");
  const int on = 1, off = 0;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (address->sa_family == AF_INET6) {
    setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  }
  if (bind(fd.get(), address, length) != 0 || listen(fd.get(), SOMAXCONN) != 0) {
    if (errno == EADDRINUSE) {
      return FailedPreconditionError(
          "port ", port, " of this host is in use", HolderOf(port),
          "; end that process, choose another MASTER_PORT, or start the ranks with `ait run`, "
          "which finds a free one");
    }
    return ErrnoError(errno, "cannot listen at port ", port);
  }
  return fd;
}

constexpr std::string_view kUnix = "unix:";

// The address of a name: no file, but an entry of the network namespace (unix(7), "abstract").
struct UnixAddress {
  sockaddr_un address{};
  socklen_t length = 0;
};
StatusOr<UnixAddress> UnixAddressOf(const std::string& host) {
  const std::string_view name = std::string_view(host).substr(kUnix.size());
  UnixAddress result;
  if (name.empty() || name.size() >= sizeof(result.address.sun_path)) {
    return InvalidArgumentError("the name of ", host, " has ", name.size(),
                                " bytes; allowed are 1 to ", sizeof(result.address.sun_path) - 1);
  }
  result.address.sun_family = AF_UNIX;
  std::copy(name.begin(), name.end(), result.address.sun_path + 1);
  result.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return result;
}

StatusOr<SocketFd> ListenUnix(const std::string& host) {
  AIT_ASSIGN_OR_RETURN(const UnixAddress name, UnixAddressOf(host));
  SocketFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.open()) return ErrnoError(errno, "cannot make a socket");
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&name.address), name.length) != 0 ||
      listen(fd.get(), SOMAXCONN) != 0) {
    if (errno == EADDRINUSE) {
      return FailedPreconditionError(
          host,
          " of this host is in use: another process is rank 0 of this job; if it is left over "
          "from another run, end it, or set MASTER_ADDR and MASTER_PORT");
    }
    return ErrnoError(errno, "cannot listen at ", host);
  }
  return fd;
}

StatusOr<SocketFd> ConnectUnix(const std::string& host) {
  AIT_ASSIGN_OR_RETURN(const UnixAddress name, UnixAddressOf(host));
  SocketFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.open()) return ErrnoError(errno, "cannot make a socket");
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&name.address), name.length) != 0) {
    return ErrnoError(errno, host);
  }
  AIT_RETURN_IF_ERROR(CheckPeerUser(fd.get()));
  PrepareConnection(fd.get());
  return fd;
}

}  // namespace

bool SaysUnix(std::string_view host) { return host.substr(0, kUnix.size()) == kUnix; }

std::string ShowEndpoint(std::string_view host, std::uint16_t port) {
  return SaysUnix(host) ? std::string(host) : StrCat(host, " port ", port);
}

Status CheckPeerUser(int fd) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  int domain = 0;
  socklen_t domain_length = sizeof(domain);
  if (getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &domain_length) != 0 || domain != AF_UNIX) {
    return OkStatus();
  }
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) {
    return ErrnoError(errno, "cannot read who is at the other end of a socket");
  }
  if (peer.uid == geteuid() || peer.uid == 0) return OkStatus();
  return PermissionDeniedError("process ", peer.pid, " of user ", peer.uid,
                               " holds the name at which user ", geteuid(),
                               "'s ranks meet; set MASTER_ADDR and MASTER_PORT");
}

void SocketFd::Close() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
}

bool SaysLoopback(std::string_view host) {
  return host == "localhost" || host == "::1" || host.substr(0, 4) == "127.";
}

StatusOr<SocketFd> Listen(const std::string& host, std::uint16_t port) {
  if (SaysUnix(host)) return ListenUnix(host);
  if (SaysLoopback(host)) {
    AIT_ASSIGN_OR_RETURN(const AddressList addresses, Resolve(host, port, SOCK_STREAM));
    const addrinfo* chosen = addresses.get();  // clients try all addresses; IPv4 always exists
    for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
      if (a->ai_family == AF_INET) {
        chosen = a;
        break;
      }
    }
    return BindAndListen(chosen->ai_addr, chosen->ai_addrlen, port);
  }
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  any6.sin6_port = htons(port);
  any6.sin6_addr = in6addr_any;
  StatusOr<SocketFd> both =
      BindAndListen(reinterpret_cast<const sockaddr*>(&any6), sizeof(any6), port);
  if (both.ok() || both.status().code() == StatusCode::kFailedPrecondition) return both;
  sockaddr_in any4{};  // a host without IPv6
  any4.sin_family = AF_INET;
  any4.sin_port = htons(port);
  any4.sin_addr.s_addr = htonl(INADDR_ANY);
  return BindAndListen(reinterpret_cast<const sockaddr*>(&any4), sizeof(any4), port);
}

StatusOr<SocketFd> AdoptListener(int fd) {
  int listens = 0;
  socklen_t length = sizeof(listens);
  if (getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) != 0 || listens == 0) {
    return FailedPreconditionError("descriptor ", fd,
                                   " (AIT_LISTEN_FD) is not a socket that listens; the launcher "
                                   "must hand it down open");
  }
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  return SocketFd(fd);
}

StatusOr<std::uint16_t> LocalPort(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    return ErrnoError(errno, "cannot read the port of a socket");
  }
  if (address.ss_family == AF_UNIX) return std::uint16_t{0};
  return ntohs(address.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&address)->sin_port);
}

std::string LocalAddress(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof(address);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) return "";
  if (address.ss_family != AF_INET && address.ss_family != AF_INET6) return "";
  return NumericAddress(reinterpret_cast<const sockaddr*>(&address), length);
}

StatusOr<SocketFd> ConnectOnce(const std::string& host, std::uint16_t port, Deadline deadline) {
  if (SaysUnix(host)) return ConnectUnix(host);
  AIT_ASSIGN_OR_RETURN(const AddressList addresses, Resolve(host, port, SOCK_STREAM));
  Status last = NotFoundError("the name ", host, " has no address");
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    SocketFd fd(socket(a->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.open()) {
      last = ErrnoError(errno, "cannot make a socket");
      continue;
    }
    int error = connect(fd.get(), a->ai_addr, a->ai_addrlen) == 0 ? 0 : errno;
    if (error == EINPROGRESS) {
      // One address that swallows packets must not use up the time of the others.
      const Deadline attempt =
          Deadline::At(std::min(deadline.time(), Deadline::After(std::chrono::seconds(3)).time()));
      socklen_t length = sizeof(error);
      if (!PollOne(fd.get(), POLLOUT, attempt)) {
        error = ETIMEDOUT;
      } else if (getsockopt(fd.get(), SOL_SOCKET, SO_ERROR, &error, &length) != 0) {
        error = errno;
      }
    }
    if (error != 0) {
      last =
          ErrnoError(error, host, " (", NumericAddress(a->ai_addr, a->ai_addrlen), ") port ", port);
      continue;
    }
    // A connect to a free port of this host can meet itself (both ends the same socket).
    sockaddr_storage own{}, peer{};
    socklen_t own_length = sizeof(own), peer_length = sizeof(peer);
    getsockname(fd.get(), reinterpret_cast<sockaddr*>(&own), &own_length);
    getpeername(fd.get(), reinterpret_cast<sockaddr*>(&peer), &peer_length);
    if (own_length == peer_length && std::memcmp(&own, &peer, own_length) == 0) {
      last = ErrnoError(ECONNREFUSED, host, " port ", port);
      continue;
    }
    PrepareConnection(fd.get());
    return fd;
  }
  return last;
}

StatusOr<std::string> AddressTowards(const std::string& host, std::uint16_t port) {
  AIT_ASSIGN_OR_RETURN(const AddressList addresses, Resolve(host, port, SOCK_DGRAM));
  for (const addrinfo* a = addresses.get(); a != nullptr; a = a->ai_next) {
    // Connecting a datagram socket only chooses the route.
    SocketFd fd(socket(a->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    if (!fd.open() || connect(fd.get(), a->ai_addr, a->ai_addrlen) != 0) continue;
    if (std::string address = LocalAddress(fd.get()); !address.empty()) return address;
  }
  return NotFoundError("no route leads to ", host);
}

Status SendAll(int fd, std::string_view bytes, Deadline deadline) {
  return SendRest(fd, bytes, deadline);
}

Status SendRest(int fd, std::string_view& rest, Deadline deadline) {
  while (!rest.empty()) {
    const ssize_t sent = send(fd, rest.data(), rest.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) {
      rest.remove_prefix(static_cast<std::size_t>(sent));
    } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
      if (!PollOne(fd, POLLOUT, deadline)) {
        return DeadlineExceededError("the connection does not take more bytes");
      }
    } else if (errno != EINTR) {
      return UnavailableError("the connection broke: ", std::strerror(errno));
    }
  }
  return OkStatus();
}

int PollTimeout(Deadline deadline) {
  if (deadline.is_infinite()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline.remaining()).count();
  return static_cast<int>(std::min<std::int64_t>(left, 1 << 30));
}

bool PollOne(int fd, short events, Deadline deadline) {
  pollfd entry{fd, events, 0};
  while (true) {
    const int ready = poll(&entry, 1, PollTimeout(deadline));
    if (ready > 0) return true;
    if (ready == 0 && deadline.expired()) return false;
    if (ready < 0 && errno != EINTR) return false;
  }
}

void PrepareConnection(int fd) {
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  const int on = 1, idle = 10, interval = 5, probes = 3;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof(idle));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &interval, sizeof(interval));
  setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &probes, sizeof(probes));
}

}  // namespace ait::inline v0::internal

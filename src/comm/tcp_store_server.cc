// SPDX-License-Identifier: Apache-2.0
#include "comm/tcp_store_server.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "comm/own_thread.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::chrono::seconds kHelloTimeout{10};
constexpr std::chrono::seconds kGoodbyeTimeout{1};
constexpr std::size_t kMaxStrangers = 256;
constexpr std::size_t kMaxUnsent = std::size_t{8} << 20;  // then a rank's requests have to wait

bool StartsWith(std::string_view text, std::string_view start) {
  return text.substr(0, start.size()) == start;
}

}  // namespace

TcpStoreServer::TcpStoreServer(SocketFd listener, SocketFd own, SocketFd wake, Options options)
    : options_(std::move(options)),
      listener_(std::move(listener)),
      wake_(std::move(wake)),
      members_(static_cast<std::size_t>(options_.size.value()), nullptr),
      came_(static_cast<std::size_t>(options_.size.value()), false),
      join_deadline_(Deadline::After(options_.timeout)) {
  auto connection = std::make_unique<Connection>();
  connection->fd = std::move(own);
  connection->own = true;
  connection->hello_by = SystemClock().now() + kHelloTimeout;
  connections_.push_back(std::move(connection));
}

StatusOr<std::unique_ptr<TcpStoreServer>> TcpStoreServer::Create(SocketFd listener, SocketFd own,
                                                                 Options options) {
  PrepareConnection(listener.get());
  PrepareConnection(own.get());
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    return ErrnoError(errno, "cannot make a socket pair");
  }
  std::unique_ptr<TcpStoreServer> server(new TcpStoreServer(std::move(listener), std::move(own),
                                                            SocketFd(ends[0]), std::move(options)));
  server->stop_ = SocketFd(ends[1]);
  AIT_ASSIGN_OR_RETURN(server->thread_,
                       StartOwnThread("the store of rank 0", [raw = server.get()] { raw->Run(); }));
  return server;
}

TcpStoreServer::~TcpStoreServer() {
  stop_.Close();  // the thread sees the end of its `wake_`
  if (thread_.joinable()) thread_.join();
}

std::string TcpStoreServer::reached_at() const {
  std::lock_guard lock(mutex_);
  return reached_at_;
}

void TcpStoreServer::Run() {
  while (stop_deadline_.is_infinite() || (!stop_deadline_.expired() && !OthersLeft())) {
    Poll();
    CheckTimers();
    std::erase_if(connections_, [](const auto& connection) { return connection->closed; });
  }
  Broadcast({.type = FrameType::kGoodbye});
  const Deadline deadline = Deadline::After(std::chrono::seconds(1));  // for all together
  for (const auto& connection : connections_) {
    const Status sent = SendAll(connection->fd.get(), connection->out, deadline);
    if (!sent.ok()) Log(options_.log, Severity::kInfo, "comm", Message(sent));
    shutdown(connection->fd.get(), SHUT_WR);
  }
}

void TcpStoreServer::Poll() {
  const Time now = SystemClock().now();
  std::vector<pollfd> entries;
  entries.push_back(
      {wake_.get(), static_cast<short>(stop_deadline_.is_infinite() ? POLLIN : 0), 0});
  entries.push_back({listener_.get(), static_cast<short>(now < accept_again_ ? 0 : POLLIN), 0});
  Time next = std::min(stop_deadline_.time(), joined_ ? Time::max() : join_deadline_.time());
  if (now < accept_again_) next = std::min(next, accept_again_);
  for (const auto& connection : connections_) {
    short events = connection->out.size() < kMaxUnsent ? POLLIN : 0;
    if (!connection->out.empty()) events |= POLLOUT;
    entries.push_back({connection->fd.get(), events, 0});
    if (connection->phase != Phase::kMember) next = std::min(next, connection->hello_by);
  }
  // After the stop is known, its descriptor stays readable: leave it out.
  if (!stop_deadline_.is_infinite()) entries[0].fd = -1;
  if (poll(entries.data(), entries.size(), PollTimeout(Deadline::At(next))) <= 0) return;
  if (entries[0].revents != 0) stop_deadline_ = Deadline::After(kGoodbyeTimeout);
  for (std::size_t i = 2; i < entries.size(); ++i) {
    Connection& connection = *connections_[i - 2];
    if ((entries[i].revents & POLLOUT) != 0) Flush(connection);
    if ((entries[i].revents & (POLLIN | POLLHUP | POLLERR)) != 0 && !connection.closed) {
      Read(connection);
    }
  }
  if (entries[1].revents != 0) Accept();
}

void TcpStoreServer::Accept() {
  while (true) {
    SocketFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.open()) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      // Out of descriptors or memory: the queue of the listener keeps who comes; try again soon.
      if (errno != EAGAIN && errno != EWOULDBLOCK) {
        accept_again_ = SystemClock().now() + std::chrono::milliseconds(100);
      }
      return;
    }
    if (const Status peer = CheckPeerUser(fd.get()); !peer.ok()) {
      Log(options_.log, Severity::kWarning, "comm", StrCat("refused: ", Message(peer)));
      continue;
    }
    PrepareConnection(fd.get());
    const auto is_stranger = [](const auto& c) {
      return c->phase == Phase::kStranger && !c->closed && !c->own;
    };
    if (static_cast<std::size_t>(std::count_if(connections_.begin(), connections_.end(),
                                               is_stranger)) >= kMaxStrangers) {
      Close(**std::find_if(connections_.begin(), connections_.end(), is_stranger));
    }
    auto connection = std::make_unique<Connection>();
    connection->fd = std::move(fd);
    connection->hello_by = SystemClock().now() + kHelloTimeout;
    connections_.push_back(std::move(connection));
  }
}

void TcpStoreServer::Read(Connection& connection) {
  std::array<char, 16384> chunk;
  const ssize_t got = recv(connection.fd.get(), chunk.data(), chunk.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (got <= 0) return Close(connection);
  if (connection.phase == Phase::kClosing) return;  // what a refused one still says
  connection.in.append(chunk.data(), static_cast<std::size_t>(got));
  std::size_t position = 0;
  while (!connection.closed && connection.phase != Phase::kClosing) {
    Frame frame;
    const std::size_t cap = connection.phase == Phase::kMember ? kMaxFrame : kMaxHelloFrame;
    const StatusOr<Parsed> parsed = ParseFrame(connection.in, &position, cap, &frame);
    if (!parsed.ok()) {
      Log(options_.log, Severity::kWarning, "comm",
          StrCat("a connection to the store sent ", Message(parsed.status()), "; closed"));
      return Close(connection);
    }
    if (*parsed == Parsed::kIncomplete) break;
    Handle(connection, frame);
  }
  connection.in.erase(0, position);
}

void TcpStoreServer::Handle(Connection& connection, const Frame& frame) {
  if (connection.phase == Phase::kStranger) {
    if (frame.type != FrameType::kHello || frame.id != kHelloMagic) return Close(connection);
    HandleHello(connection, frame);
  } else {
    HandleRequest(connection, frame);
  }
}

void TcpStoreServer::HandleHello(Connection& connection, const Frame& frame) {
  const auto rank = static_cast<std::int64_t>(static_cast<std::uint64_t>(frame.number) >> 32);
  const auto size = static_cast<std::int64_t>(frame.number & 0xffffffff);
  connection.who = frame.value.substr(0, 200);
  const std::string what = StrCat("rank ", rank, " (", connection.who, ")");
  if (frame.key != options_.run_id) {
    return Refuse(
        connection,
        StrCat(what, " belongs to run \"", frame.key, "\", but this is the store of run \"",
               options_.run_id, "\"; end the processes of the other run, or use another port"));
  }
  if (size != options_.size.value()) {
    return Refuse(connection, StrCat(what, " has world size ", size, ", but rank 0 has ",
                                     options_.size, "; WORLD_SIZE must be the same on all ranks"));
  }
  if (rank >= size) {
    return Refuse(connection, StrCat(what, " does not exist in a world of ", size));
  }
  const auto index = static_cast<std::size_t>(rank);
  if (came_[index]) {
    const Connection* holder = members_[index];
    return Refuse(connection, StrCat(what, " joined twice: ",
                                     holder != nullptr ? StrCat(holder->who, " has that rank")
                                                       : std::string("the first has already left"),
                                     "; every process needs its own RANK"));
  }
  if (!join_error_.ok()) return Refuse(connection, Message(join_error_));
  connection.phase = Phase::kMember;
  connection.rank = static_cast<int>(rank);
  members_[index] = &connection;
  came_[index] = true;
  if (std::string address = LocalAddress(connection.fd.get()); !address.empty()) {
    std::lock_guard lock(mutex_);
    const bool is_loopback = StartsWith(address, "127.") || address == "::1";
    if (reached_at_.empty() || !is_loopback) reached_at_ = std::move(address);
  }
  Send(connection, {.type = FrameType::kWelcome});
  if (std::find(came_.begin(), came_.end(), false) == came_.end()) {
    joined_ = true;
    Broadcast({.type = FrameType::kJoined});
  }
}

void TcpStoreServer::HandleRequest(Connection& connection, const Frame& frame) {
  Frame reply{.type = FrameType::kReply, .id = frame.id};
  const auto fail = [&](const Status& status) {
    reply = {.type = FrameType::kError,
             .id = frame.id,
             .number = static_cast<std::int64_t>(status.code()),
             .value = Message(status)};
  };
  const auto answer_waiters = [&] {
    const auto waiting = waiters_.find(frame.key);
    if (waiting == waiters_.end()) return;
    const StatusOr<std::string> value = values_->Get(frame.key, Deadline::Infinite());
    for (const Waiter& waiter : std::exchange(waiting->second, {})) {
      Send(*waiter.connection, {.type = FrameType::kReply, .id = waiter.id, .value = *value});
    }
    waiters_.erase(frame.key);
  };
  switch (frame.type) {
    case FrameType::kSet:
      if (const Status status = values_->Set(frame.key, frame.value); !status.ok()) fail(status);
      answer_waiters();
      break;
    case FrameType::kAdd: {
      const StatusOr<std::int64_t> sum = values_->Add(frame.key, frame.number);
      if (sum.ok()) {
        reply.number = *sum;
        answer_waiters();
      } else {
        fail(sum.status());
      }
      break;
    }
    case FrameType::kContains:
      reply.number = *values_->Contains(frame.key) ? 1 : 0;
      break;
    case FrameType::kGet:
      if (!*values_->Contains(frame.key)) {
        waiters_[frame.key].push_back({&connection, frame.id});
        return;
      }
      reply.value = *values_->Get(frame.key, Deadline::Infinite());
      break;
    case FrameType::kForget:
      if (const auto waiting = waiters_.find(frame.key); waiting != waiters_.end()) {
        std::erase_if(waiting->second, [&](const Waiter& waiter) {
          return waiter.connection == &connection && waiter.id == frame.id;
        });
        if (waiting->second.empty()) waiters_.erase(waiting);
      }
      return;
    case FrameType::kMissing:
      reply.value = MissingRanks();
      break;
    case FrameType::kGoodbye:
      connection.goodbye = true;
      return Close(connection);
    default:
      Log(options_.log, Severity::kWarning, "comm",
          StrCat("rank ", connection.rank, " sent a frame that only the server sends; closed"));
      return Close(connection);
  }
  Send(connection, reply);
}

void TcpStoreServer::Refuse(Connection& connection, const std::string& why) {
  if (refused_.size() < 8) refused_.push_back(why);
  Log(options_.log, Severity::kWarning, "comm", StrCat("refused: ", why));
  connection.phase = Phase::kClosing;
  Send(connection, {.type = FrameType::kRefused, .value = why});
}

void TcpStoreServer::Send(Connection& connection, const Frame& frame) {
  if (connection.closed) return;
  AppendFrame(frame, connection.out);
  Flush(connection);
}

void TcpStoreServer::Flush(Connection& connection) {
  while (!connection.out.empty()) {
    const ssize_t sent = send(connection.fd.get(), connection.out.data(), connection.out.size(),
                              MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      connection.out.erase(0, static_cast<std::size_t>(sent));
    } else if (errno != EINTR) {
      return;  // full: go on when poll says so; broken: the next read sees it
    }
  }
  if (connection.phase == Phase::kClosing) shutdown(connection.fd.get(), SHUT_WR);
}

void TcpStoreServer::Close(Connection& connection) {
  if (connection.closed) return;
  connection.closed = true;
  connection.fd.Close();
  for (auto waiting = waiters_.begin(); waiting != waiters_.end();) {
    std::erase_if(waiting->second,
                  [&](const Waiter& waiter) { return waiter.connection == &connection; });
    waiting = waiting->second.empty() ? waiters_.erase(waiting) : std::next(waiting);
  }
  if (connection.phase != Phase::kMember) return;
  members_[static_cast<std::size_t>(connection.rank)] = nullptr;
  if (!joined_) {
    return FailJoin(UnavailableError("rank ", connection.rank, " (", connection.who, ") left ",
                                     "while the others were still joining"));
  }
  if (connection.goodbye) return;
  Log(options_.log, Severity::kWarning, "comm",
      StrCat("rank ", connection.rank, " (", connection.who, ") died"));
  Broadcast({.type = FrameType::kDeparted, .number = connection.rank});
}

void TcpStoreServer::Broadcast(const Frame& frame) {
  for (Connection* member : members_) {
    if (member != nullptr) Send(*member, frame);
  }
}

void TcpStoreServer::FailJoin(const Status& status) {
  if (joined_ || !join_error_.ok()) return;
  std::string text = Message(status);
  for (const std::string& why : refused_) text += StrCat("; refused: ", why);
  join_error_ = Status(status.code(), text);
  Broadcast({.type = FrameType::kJoinFailed,
             .number = static_cast<std::int64_t>(status.code()),
             .value = text});
}

void TcpStoreServer::CheckTimers() {
  const Time now = SystemClock().now();
  for (const auto& connection : connections_) {
    if (connection->phase != Phase::kMember && now >= connection->hello_by) Close(*connection);
  }
  if (!joined_ && join_error_.ok() && join_deadline_.expired()) {
    FailJoin(DeadlineExceededError(MissingRanks(), " did not join within ",
                                   options_.timeout.count(), " ms"));
  }
  // Once the failure is told, the timer must not keep the loop awake.
  if (!join_error_.ok()) join_deadline_ = Deadline::Infinite();
}

bool TcpStoreServer::OthersLeft() const {
  return std::all_of(members_.begin() + 1, members_.end(),
                     [](const Connection* member) { return member == nullptr; });
}

std::string TcpStoreServer::MissingRanks() const {
  std::string list;
  int missing = 0;
  for (std::size_t rank = 0; rank < came_.size(); ++rank) {
    if (came_[rank]) continue;
    if (++missing > 16) continue;
    list += StrCat(missing > 1 ? ", " : "", rank);
  }
  if (missing > 16) list += StrCat(" and ", missing - 16, " more");
  return StrCat(missing == 1 ? "rank " : "ranks ", list, " of ", options_.size);
}

}  // namespace ait::inline v0::internal

// SPDX-License-Identifier: Apache-2.0
#include "comm/tcp_store_client.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "comm/own_thread.h"

namespace ait::inline v0::internal {

using std::chrono::milliseconds;

namespace {

constexpr milliseconds kStalledPatience{100};
constexpr milliseconds kAnswerPatience{1000};

std::string Who() {
  char host[256] = "an unnamed host";
  gethostname(host, sizeof(host) - 1);
  return StrCat("pid ", getpid(), " on ", host);
}

}  // namespace

TcpStoreClient::TcpStoreClient(SocketFd fd, SocketFd wake, SocketFd stop, Options options)
    : options_(std::move(options)),
      fd_(std::move(fd)),
      wake_(std::move(wake)),
      stop_(std::move(stop)) {}

StatusOr<std::unique_ptr<TcpStoreClient>> TcpStoreClient::Create(SocketFd fd, Options options,
                                                                 Deadline deadline) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) {
    return ErrnoError(errno, "cannot make a socket pair");
  }
  PrepareConnection(fd.get());
  std::unique_ptr<TcpStoreClient> client(
      new TcpStoreClient(std::move(fd), SocketFd(ends[0]), SocketFd(ends[1]), std::move(options)));
  const Options& self = client->options_;
  const auto number = (static_cast<std::uint64_t>(self.rank.value()) << 32) |
                      static_cast<std::uint64_t>(self.size.value());
  AIT_RETURN_IF_ERROR(client->SendFrame({.type = FrameType::kHello,
                                         .id = kHelloMagic,
                                         .number = static_cast<std::int64_t>(number),
                                         .key = self.run_id,
                                         .value = Who()},
                                        deadline));
  AIT_ASSIGN_OR_RETURN(const Frame answer, client->ReadFirst(deadline));
  if (answer.type == FrameType::kRefused) {
    return FailedPreconditionError("refused by ", self.server, ": ", answer.value);
  }
  if (answer.type != FrameType::kWelcome) {
    return FailedPreconditionError(self.server, " answered in the wrong order; is it of another ",
                                   "version of ait?");
  }
  AIT_ASSIGN_OR_RETURN(client->reader_, StartOwnThread("the connection to the store",
                                                       [raw = client.get()] { raw->Run(); }));
  return client;
}

StatusOr<Frame> TcpStoreClient::ReadFirst(Deadline deadline) {
  while (true) {
    if (!PollOne(fd_.get(), POLLIN, deadline)) {
      return DeadlineExceededError(options_.server, " accepts connections but does not answer");
    }
    std::array<char, 4096> chunk;
    const ssize_t got = recv(fd_.get(), chunk.data(), chunk.size(), 0);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (got <= 0) return UnavailableError(options_.server, " closed the connection");
    in_.append(chunk.data(), static_cast<std::size_t>(got));
    Frame frame;
    std::size_t position = 0;
    const StatusOr<Parsed> parsed = ParseFrame(in_, &position, kMaxFrame, &frame);
    if (!parsed.ok()) {
      return FailedPreconditionError("what answers as ", options_.server,
                                     " is not a store of ait (", Message(parsed.status()),
                                     "): check MASTER_ADDR and MASTER_PORT");
    }
    if (*parsed == Parsed::kIncomplete) continue;
    in_.erase(0, position);
    return frame;
  }
}

TcpStoreClient::~TcpStoreClient() {
  if (!reader_.joinable()) return;
  OnDeparture(nullptr);
  const Deadline deadline = Deadline::After(milliseconds(500));
  const Status sent = SendFrame({.type = FrameType::kGoodbye}, deadline);
  if (sent.ok()) {
    // The server closes when it has read the goodbye; closing first could take it away again.
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline.time(), [&] { return !lost_.ok(); });
  }
  stop_.Close();
  reader_.join();
}

Status TcpStoreClient::SendFrame(const Frame& frame, Deadline deadline) {
  if (kFrameOverhead + frame.key.size() + frame.value.size() > kMaxFrame) {
    return InvalidArgumentError("key and value of ", frame.key.size() + frame.value.size(),
                                " bytes; the store takes at most 1 MiB");
  }
  std::string bytes;
  AppendFrame(frame, bytes);
  Status lost;
  {
    std::lock_guard lock(send_mutex_);
    if (!half_sent_.ok()) return half_sent_;
    std::string_view rest = bytes;
    const Status sent = SendRest(fd_.get(), rest, deadline);
    if (sent.ok()) return sent;
    if (rest.size() == bytes.size()) return Annotate(sent, options_.server);
    // Whatever follows would be taken for the rest of this frame.
    half_sent_ = lost = UnavailableError(options_.server, " took only a part of a request (",
                                         Message(sent), "); the connection is given up");
    shutdown(fd_.get(), SHUT_RDWR);
  }
  Lose(lost);
  return lost;
}

Status TcpStoreClient::AwaitJoin(Deadline deadline) {
  {
    std::unique_lock lock(mutex_);
    changed_.wait_until(lock, deadline.time(), [&] { return joined_ || !lost_.ok(); });
    if (joined_) return OkStatus();
    if (!lost_.ok()) return lost_;
  }
  // The server gives up at its own deadline; ours came first.
  const StatusOr<Frame> missing =
      Ask({.type = FrameType::kMissing}, Deadline::After(milliseconds(500)));
  return DeadlineExceededError(missing.ok() ? missing->value : "some ranks",
                               " did not join in time");
}

// A server that hangs is waited for in full once, not by every request again.
Deadline TcpStoreClient::Patience() const {
  return Deadline::After(stalled_ ? std::min(options_.patience, kStalledPatience)
                                  : options_.patience);
}

Status TcpStoreClient::CheckAnswers() {
  StatusOr<Frame> reply = Ask(
      {.type = FrameType::kContains},
      Deadline::After(stalled_ ? kStalledPatience : std::min(options_.patience, kAnswerPatience)));
  if (reply.status().code() == StatusCode::kDeadlineExceeded) stalled_ = true;
  return reply.status();
}

StatusOr<Frame> TcpStoreClient::Ask(Frame request) {
  StatusOr<Frame> reply = Ask(std::move(request), Patience());
  if (reply.status().code() == StatusCode::kDeadlineExceeded) stalled_ = true;
  return reply;
}

StatusOr<Frame> TcpStoreClient::Ask(Frame request, Deadline deadline) {
  if (OnReader()) {
    return FailedPreconditionError(
        "a callback of the store makes a request of it, whose answer would come on the same "
        "thread; "
        "make it on another one");
  }
  auto call = std::make_shared<Call>();
  {
    std::lock_guard lock(mutex_);
    if (!lost_.ok()) return lost_;
    request.id = next_id_++;
    calls_.emplace(request.id, call);
  }
  // Even a request with a short deadline has to leave whole: half a frame would be the last.
  Status sent = SendFrame(request, Patience());
  std::unique_lock lock(mutex_);
  const auto over = [&] { return call->done; };
  if (sent.ok()) {
    if (deadline.is_infinite()) {
      changed_.wait(lock, over);
    } else {
      changed_.wait_until(lock, deadline.time(), over);
    }
    if (call->done) return call->reply;
    sent = DeadlineExceededError(options_.server, " did not answer");
  }
  calls_.erase(request.id);
  lock.unlock();
  if (request.type == FrameType::kGet) {
    SendFrame({.type = FrameType::kForget, .id = request.id, .key = request.key}, Patience())
        .IgnoreError();
  }
  return sent;
}

std::uint64_t TcpStoreClient::Watch(std::string_view key,
                                    std::function<void(std::string)> callback) {
  auto call = std::make_shared<Call>();
  call->callback = std::move(callback);
  call->key = std::string(key);
  Frame request{.type = FrameType::kGet, .key = call->key};
  {
    std::lock_guard lock(mutex_);
    request.id = next_id_++;
    calls_.emplace(request.id, std::move(call));
  }
  // If it cannot be sent, the store goes, and the callback is never called.
  SendFrame(request, Patience()).IgnoreError();
  return request.id;
}

void TcpStoreClient::Unwatch(std::uint64_t watch) {
  std::unique_lock lock(mutex_);
  if (const auto call = calls_.find(watch); call != calls_.end()) {
    const std::string key = call->second->key;
    calls_.erase(call);
    lock.unlock();
    SendFrame({.type = FrameType::kForget, .id = watch, .key = key}, Patience()).IgnoreError();
    return;
  }
  std::erase_if(fired_, [&](const auto& fired) { return fired.first == watch; });
  fired_calls_.erase(watch);
  if (!OnReader()) changed_.wait(lock, [&] { return in_watch_ != watch; });
}

void TcpStoreClient::OnDeparture(std::function<void(Rank)> callback) {
  {
    std::unique_lock lock(mutex_);
    on_departure_ = std::move(callback);
    told_ = 0;
    if (!OnReader()) changed_.wait(lock, [&] { return !in_departure_; });
  }
  const char wake = 0;  // so that the thread tells of those that died before
  send(stop_.get(), &wake, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
}

std::vector<Rank> TcpStoreClient::departed() const {
  std::lock_guard lock(mutex_);
  return departed_;
}

void TcpStoreClient::Run() {
  reader_id_ = std::this_thread::get_id();
  std::size_t position = 0;  // frames that came with the welcome
  Frame frame;
  while (true) {
    const StatusOr<Parsed> parsed = ParseFrame(in_, &position, kMaxFrame, &frame);
    if (!parsed.ok() || *parsed == Parsed::kIncomplete) break;
    Handle(frame);
  }
  in_.erase(0, position);
  while (true) {
    RunCallbacks();
    pollfd entries[2] = {{wake_.get(), POLLIN, 0}, {fd_.get(), POLLIN, 0}};
    {
      std::lock_guard lock(mutex_);
      if (!lost_.ok()) entries[1].fd = -1;  // only callbacks of departures are left to serve
    }
    if (poll(entries, 2, -1) < 0) continue;
    if (entries[0].revents != 0) {
      char drain[64];
      if (recv(wake_.get(), drain, sizeof(drain), 0) == 0) return;  // stop_ was closed
    }
    if (entries[1].revents != 0) Receive();
  }
}

void TcpStoreClient::Receive() {
  std::array<char, 16384> chunk;
  const ssize_t got = recv(fd_.get(), chunk.data(), chunk.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR)) return;
  if (got <= 0) {
    return Lose(UnavailableError(options_.server, " closed the connection",
                                 got < 0 ? StrCat(" (", std::strerror(errno), ")") : ""));
  }
  stalled_ = false;
  in_.append(chunk.data(), static_cast<std::size_t>(got));
  std::size_t position = 0;
  while (true) {
    Frame frame;
    const StatusOr<Parsed> parsed = ParseFrame(in_, &position, kMaxFrame, &frame);
    if (!parsed.ok()) {
      return Lose(DataLossError(options_.server, " sent ", Message(parsed.status())));
    }
    if (*parsed == Parsed::kIncomplete) break;
    Handle(std::move(frame));
  }
  in_.erase(0, position);
}

void TcpStoreClient::Handle(Frame frame) {
  switch (frame.type) {
    case FrameType::kReply: {
      const std::uint64_t id = frame.id;
      return Finish(id, std::move(frame));
    }
    case FrameType::kError:
      return Finish(frame.id, Status(static_cast<StatusCode>(frame.number), frame.value));
    case FrameType::kDeparted:
      return Depart(Rank(static_cast<int>(frame.number)));
    case FrameType::kJoined: {
      std::lock_guard lock(mutex_);
      joined_ = true;
      changed_.notify_all();
      return;
    }
    case FrameType::kJoinFailed:
      return Lose(Status(static_cast<StatusCode>(frame.number), frame.value));
    case FrameType::kGoodbye: {
      {
        std::lock_guard lock(mutex_);
        server_left_ = true;
      }
      return Lose(UnavailableError(options_.server, " has left the run"));
    }
    default:
      return Lose(DataLossError(options_.server, " sent a frame that only ranks send"));
  }
}

void TcpStoreClient::Finish(std::uint64_t id, StatusOr<Frame> reply) {
  std::lock_guard lock(mutex_);
  const auto found = calls_.find(id);
  if (found == calls_.end()) return;  // given up meanwhile
  std::shared_ptr<Call> call = found->second;
  calls_.erase(found);
  if (call->callback) {
    if (reply.ok()) {
      fired_.emplace_back(id, std::move(reply->value));
      fired_calls_.emplace(id, std::move(call));
    }
    return;
  }
  call->done = true;
  call->reply = std::move(reply);
  changed_.notify_all();
}

void TcpStoreClient::Lose(const Status& why) {
  std::unique_lock lock(mutex_);
  if (!lost_.ok()) return;
  lost_ = why;
  for (const auto& [id, call] : calls_) {
    call->done = true;
    call->reply = why;
  }
  calls_.clear();
  const bool died = joined_ && !server_left_ && options_.rank != Rank(0);
  changed_.notify_all();
  lock.unlock();
  if (died) Depart(Rank(0));
}

void TcpStoreClient::Depart(Rank rank) {
  std::lock_guard lock(mutex_);
  departed_.push_back(rank);
  changed_.notify_all();
}

void TcpStoreClient::RunCallbacks() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (on_departure_ && told_ < departed_.size()) {
      const Rank rank = departed_[told_++];
      const auto callback = on_departure_;
      in_departure_ = true;
      lock.unlock();
      callback(rank);
      lock.lock();
      in_departure_ = false;
    } else if (!fired_.empty()) {
      auto [id, value] = std::move(fired_.front());
      fired_.pop_front();
      const auto node = fired_calls_.extract(id);
      in_watch_ = id;
      lock.unlock();
      node.mapped()->callback(std::move(value));
      lock.lock();
      in_watch_ = 0;
    } else {
      return;
    }
    changed_.notify_all();
  }
}

}  // namespace ait::inline v0::internal

// SPDX-License-Identifier: Apache-2.0
#include "ait/comm/tcp_store.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <thread>
#include <utility>

#include "comm/own_thread.h"
#include "comm/tcp_store_client.h"
#include "comm/tcp_store_server.h"
#include "comm/tcp_store_socket.h"

namespace ait::inline v0 {

using internal::Frame;
using internal::FrameType;
using internal::SocketFd;
using internal::TcpStoreClient;
using internal::TcpStoreServer;
using std::chrono::milliseconds;

class TcpStore::Impl {
 public:
  Rank rank;
  std::uint16_t port = 0;
  std::unique_ptr<TcpStoreServer> server;  // of rank 0
  std::unique_ptr<TcpStoreClient> client;  // destroyed first: says goodbye to the server
};

namespace {

constexpr milliseconds kAnotherProgram{2000};  // until one of several ports is given up

Status Check(const TcpStoreOptions& options) {
  if (options.size < WorldSize(1) || options.rank < Rank(0) ||
      options.rank.value() >= options.size.value()) {
    return InvalidArgumentError("rank ", options.rank, " of ", options.size,
                                " does not exist; ranks are 0 to size - 1");
  }
  if (options.run_id.size() > 255) {
    return InvalidArgumentError("the run id has ", options.run_id.size(),
                                " bytes; allowed are 255");
  }
  if (options.timeout.count() <= 0) {
    return InvalidArgumentError("a time-out of ", options.timeout.count(), " ms is not positive");
  }
  if (options.answer_timeout.count() < 0) {
    return InvalidArgumentError("an answer time-out of ", options.answer_timeout.count(),
                                " ms is negative");
  }
  if (options.rank == Rank(0)) return OkStatus();
  if (options.listen_fd >= 0) {
    return InvalidArgumentError("rank ", options.rank, " was given the listening descriptor ",
                                options.listen_fd, "; only rank 0 serves");
  }
  if (internal::SaysUnix(options.host)) return OkStatus();
  if (options.host.empty() || options.port == 0) {
    return InvalidArgumentError("rank ", options.rank,
                                " needs host and port of rank 0; it has host \"", options.host,
                                "\", port ", options.port);
  }
  return OkStatus();
}

TcpStoreClient::Options ClientOptions(const TcpStoreOptions& options) {
  return {.rank = options.rank,
          .size = options.size,
          .run_id = options.run_id,
          .server = options.rank == Rank(0)
                        ? std::string("the store of rank 0")
                        : StrCat("rank 0 at ", internal::ShowEndpoint(options.host, options.port)),
          .patience = std::min<milliseconds>(options.timeout, std::chrono::seconds(5))};
}

StatusOr<SocketFd> ListenerOf(const TcpStoreOptions& options, StatusOr<SocketFd> inherited) {
  if (options.listen_fd < 0) {
    StatusOr<SocketFd> listener = internal::Listen(options.host, options.port);
    for (const std::uint16_t port : options.other_ports) {
      if (listener.status().code() != StatusCode::kFailedPrecondition) break;
      listener = internal::Listen(options.host, port);
    }
    return listener;
  }
  AIT_ASSIGN_OR_RETURN(SocketFd listener, std::move(inherited));
  AIT_ASSIGN_OR_RETURN(const std::uint16_t port, internal::LocalPort(listener.get()));
  if (options.port != 0 && port != options.port) {
    return FailedPreconditionError("the inherited socket listens at port ", port,
                                   ", but MASTER_PORT is ", options.port);
  }
  return listener;
}

// Rank 0 may start later than we, its name may not resolve yet, and a server of an earlier attempt
// may be about to close: all that is tried again, ever more slowly. Where rank 0 may be at one of
// several ports, what does not know our run there is another program.
StatusOr<std::unique_ptr<TcpStoreClient>> Connect(TcpStoreOptions& options, Deadline deadline) {
  std::vector<std::uint16_t> ports = {options.port};
  ports.insert(ports.end(), options.other_ports.begin(), options.other_ports.end());
  milliseconds pause{10};
  Status last = OkStatus();
  while (true) {
    for (const std::uint16_t port : ports) {
      options.port = port;
      StatusOr<SocketFd> fd = internal::ConnectOnce(options.host, port, deadline);
      if (!fd.ok()) {
        last = fd.status();
        if (last.code() == StatusCode::kPermissionDenied) return last;
        continue;
      }
      Deadline answer = deadline;
      if (ports.size() > 1) {  // another program may accept and say nothing
        answer = Deadline::At(std::min(deadline.time(), Deadline::After(kAnotherProgram).time()));
      }
      auto client = TcpStoreClient::Create(*std::move(fd), ClientOptions(options), answer);
      if (client.ok()) return client;
      last = client.status();
      const bool is_another = ports.size() > 1 && (last.code() == StatusCode::kFailedPrecondition ||
                                                   last.code() == StatusCode::kDeadlineExceeded);
      if (last.code() != StatusCode::kUnavailable && !is_another) return client;
    }
    if (Deadline::After(pause).time() >= deadline.time()) {
      const bool unix_socket = internal::SaysUnix(options.host);
      return DeadlineExceededError(
          "rank 0 of ", options.size, " did not come: nothing serves the run at ",
          internal::ShowEndpoint(options.host, ports.front()), " in time (last: ", Message(last),
          "); check ",
          unix_socket ? "that rank 0 runs; if it is in another network namespace, such as a "
                        "container's, set MASTER_ADDR and MASTER_PORT"
                      : "MASTER_ADDR and MASTER_PORT, and that rank 0 runs");
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, milliseconds(500));
  }
}

}  // namespace

TcpStore::TcpStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

TcpStore::~TcpStore() {
  internal::RunOffOwnThreads([impl = std::shared_ptr<Impl>(std::move(impl_))] {
    impl->client.reset();
    impl->server.reset();
  });
}

StatusOr<std::unique_ptr<TcpStore>> TcpStore::Create(const TcpStoreOptions& options) {
  // First of all, so that it is closed however this ends.
  StatusOr<SocketFd> inherited = SocketFd();
  if (options.listen_fd >= 0) inherited = internal::AdoptListener(options.listen_fd);
  AIT_RETURN_IF_ERROR(Check(options));
  const Deadline deadline = Deadline::After(options.timeout);
  auto impl = std::make_unique<Impl>();
  impl->rank = options.rank;
  impl->port = options.port;
  const std::string rank = StrCat("rank ", options.rank);
  if (options.rank == Rank(0)) {
    AIT_ASSIGN_OR_RETURN(SocketFd listener, ListenerOf(options, std::move(inherited)));
    AIT_ASSIGN_OR_RETURN(impl->port, internal::LocalPort(listener.get()));
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      return ErrnoError(errno, "cannot make a socket pair");
    }
    SocketFd own(ends[0]), served(ends[1]);
    AIT_ASSIGN_OR_RETURN(impl->server,
                         TcpStoreServer::Create(std::move(listener), std::move(served),
                                                {.size = options.size,
                                                 .run_id = options.run_id,
                                                 .timeout = options.timeout,
                                                 .log = options.log}));
    AIT_ASSIGN_OR_RETURN(impl->client,
                         TcpStoreClient::Create(std::move(own), ClientOptions(options), deadline));
  } else {
    Deadline answer = deadline;
    if (options.answer_timeout.count() > 0) {
      answer =
          Deadline::At(std::min(deadline.time(), Deadline::After(options.answer_timeout).time()));
    }
    TcpStoreOptions at = options;
    StatusOr<std::unique_ptr<TcpStoreClient>> client = Connect(at, answer);
    if (!client.ok()) return Annotate(client.status(), rank);
    impl->port = at.port;
    impl->client = *std::move(client);
  }
  // The server tells who is missing at its deadline; give its word time to arrive.
  const Status joined = impl->client->AwaitJoin(
      deadline.is_infinite() ? deadline : Deadline::At(deadline.time() + milliseconds(200)));
  if (!joined.ok()) return Annotate(joined, StrCat(rank, " cannot join the run"));
  return std::unique_ptr<TcpStore>(new TcpStore(std::move(impl)));
}

Status TcpStore::Set(std::string_view key, std::string_view value) {
  return impl_->client
      ->Ask({.type = FrameType::kSet, .key = std::string(key), .value = std::string(value)})
      .status();
}

StatusOr<std::string> TcpStore::Get(std::string_view key, Deadline deadline) {
  auto reply = impl_->client->Ask({.type = FrameType::kGet, .key = std::string(key)}, deadline);
  if (reply.ok()) return std::move(reply->value);
  if (reply.status().code() != StatusCode::kDeadlineExceeded) return reply.status();
  if (const Status alive = impl_->client->CheckAnswers(); !alive.ok()) {
    return Annotate(alive, StrCat("store: waiting for key \"", key, "\""));
  }
  return DeadlineExceededError("store: nobody set key \"", key, "\" before the deadline");
}

StatusOr<std::int64_t> TcpStore::Add(std::string_view key, std::int64_t amount) {
  AIT_ASSIGN_OR_RETURN(
      const Frame reply,
      impl_->client->Ask({.type = FrameType::kAdd, .number = amount, .key = std::string(key)}));
  return reply.number;
}

StatusOr<bool> TcpStore::Contains(std::string_view key) {
  AIT_ASSIGN_OR_RETURN(const Frame reply,
                       impl_->client->Ask({.type = FrameType::kContains, .key = std::string(key)}));
  return reply.number != 0;
}

std::uint16_t TcpStore::port() const { return impl_->port; }

std::vector<Rank> TcpStore::departed() const { return impl_->client->departed(); }

void TcpStore::OnDeparture(std::function<void(Rank)> callback) {
  impl_->client->OnDeparture(std::move(callback));
}

std::uint64_t TcpStore::Watch(std::string_view key, std::function<void(std::string)> callback) {
  return impl_->client->Watch(key, std::move(callback));
}

void TcpStore::Unwatch(std::uint64_t watch) { impl_->client->Unwatch(watch); }

std::string TcpStore::local_address() const {
  return impl_->server ? impl_->server->reached_at() : impl_->client->local_address();
}

}  // namespace ait::inline v0

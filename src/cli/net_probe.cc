// SPDX-License-Identifier: Apache-2.0
#include "cli/net_probe.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <tuple>
#include <utility>

#include "ait/comm/communicator.h"
#include "ait/comm/shared_memory.h"
#include "ait/memory/buffer.h"

namespace ait::cli {
namespace {

using SteadyClock = std::chrono::steady_clock;
constexpr int kRoundTrips = 200;
constexpr std::size_t kPiece = 1 << 20;
constexpr auto kSendFor = std::chrono::milliseconds(200);

double Microseconds(SteadyClock::duration time) {
  return std::chrono::duration<double, std::micro>(time).count();
}

class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  Socket(Socket&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  int fd() const { return fd_; }

 private:
  int fd_;
};

Status Failure(std::string_view what) {
  const bool late =
      errno == EAGAIN || errno == EWOULDBLOCK || errno == ETIMEDOUT || errno == EINPROGRESS;
  if (late) return DeadlineExceededError(what, ": no answer in time");
  return UnavailableError(what, ": ", std::strerror(errno));
}

/// Every call on it ends after the time-out.
void SetTimeout(int fd, Duration timeout) {
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(timeout).count();
  const timeval limit = {static_cast<time_t>(us / 1'000'000),
                         static_cast<suseconds_t>(us % 1'000'000)};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

Status SendAll(int fd, const void* data, std::size_t bytes) {
  const char* at = static_cast<const char*>(data);
  while (bytes > 0) {
    const ssize_t sent = send(fd, at, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0) return Failure("send");
    at += sent;
    bytes -= static_cast<std::size_t>(sent);
  }
  return OkStatus();
}

Status ReceiveAll(int fd, void* data, std::size_t bytes) {
  char* at = static_cast<char*>(data);
  while (bytes > 0) {
    const ssize_t got = recv(fd, at, bytes, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Failure("receive");
    if (got == 0) return UnavailableError("receive: the peer closed the connection");
    at += got;
    bytes -= static_cast<std::size_t>(got);
  }
  return OkStatus();
}

struct Address {
  sockaddr_storage storage = {};
  socklen_t length = 0;
};

StatusOr<Address> ParseAddress(const std::string& text, std::uint16_t port) {
  Address address;
  auto* four = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* six = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (inet_pton(AF_INET, text.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(port);
    address.length = sizeof(*four);
  } else if (inet_pton(AF_INET6, text.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(port);
    address.length = sizeof(*six);
  } else {
    return InvalidArgumentError("'", text, "' is no address");
  }
  return address;
}

class Prober {
 public:
  Prober(Store& store, const ProbeOptions& options) : store_(store), options_(options) {}

  StatusOr<std::vector<PairResult>> Run() {
    AIT_RETURN_IF_ERROR(Publish());
    std::vector<std::string> hosts;
    for (int rank = 0; rank < options_.size.value(); ++rank) {
      AIT_ASSIGN_OR_RETURN(const std::string text, store_.Get(Key("place", rank), Patient()));
      places_.push_back(nlohmann::json::parse(text));
      hosts.push_back(places_.back()["host"]);
    }
    std::vector<PairResult> results;
    for (const auto& round : ProbeRounds(hosts)) {
      for (const auto& [from, to] : round) AIT_RETURN_IF_ERROR(Measure(from, to));
      for (const auto& [from, to] : round) {  // the next round begins when all know this one
        AIT_ASSIGN_OR_RETURN(PairResult result, ResultOf(from, to));
        results.push_back(std::move(result));
      }
    }
    std::sort(results.begin(), results.end(), [](const PairResult& a, const PairResult& b) {
      return std::tie(a.from, a.to) < std::tie(b.from, b.to);
    });
    return results;
  }

 private:
  static std::string Key(std::string_view what, int a, int b = 0) {
    return StrCat("ait/doctor/", what, "/", a, "/", b);
  }
  Deadline Patient() const {
    return Deadline::After(options_.timeout * 4 + std::chrono::seconds(30));
  }

  /// Tells the others where this rank listens, or why it cannot: they go on without.
  Status Publish() {
    const StatusOr<std::uint16_t> port = Listen();
    const StatusOr<std::string> host = HostIdentity();
    const nlohmann::json place = {{"address", options_.address},
                                  {"port", port.ok() ? *port : 0},
                                  {"host", host.ok() ? *host : ""},
                                  {"error", port.ok() ? "" : Message(port.status())}};
    return store_.Set(Key("place", options_.rank.value()), place.dump());
  }

  StatusOr<std::uint16_t> Listen() {
    AIT_ASSIGN_OR_RETURN(Address own, ParseAddress(options_.address, 0));
    listener_ = Socket(socket(own.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    auto* address = reinterpret_cast<sockaddr*>(&own.storage);
    if (bind(listener_.fd(), address, own.length) != 0) {
      return Failure(StrCat("rank ", options_.rank, ": cannot listen at ", options_.address));
    }
    listen(listener_.fd(), 16);
    getsockname(listener_.fd(), address, &own.length);
    return ntohs(own.storage.ss_family == AF_INET
                     ? reinterpret_cast<sockaddr_in*>(&own.storage)->sin_port
                     : reinterpret_cast<sockaddr_in6*>(&own.storage)->sin6_port);
  }

  PairResult About(int from, int to) const {
    const nlohmann::json& source = places_[static_cast<std::size_t>(from)];
    const nlohmann::json& target = places_[static_cast<std::size_t>(to)];
    return {.from = from,
            .to = to,
            .address = target["address"],
            .error = target["error"],
            .shares_host = source["host"] == target["host"] && source["host"] != ""};
  }

  /// The part of this rank. The first of the pair reports to the store.
  Status Measure(int from, int to) {
    const int own = options_.rank.value();
    if (own != from && own != to) return OkStatus();
    PairResult result = About(from, to);
    if (!result.error.empty()) {
      // Nobody listens.
    } else if (own == from) {
      const Status status = Connect(places_[static_cast<std::size_t>(to)], result);
      if (!status.ok()) result.error = Message(status);
    } else {
      Answer(from).IgnoreError();  // the other end tells
    }
    if (result.shares_host && from < to) {
      if (const Status status = ShareMemory(from, to, result); !status.ok()) {
        result.shared_memory_error = Message(status);
      }
    }
    if (own != from) return OkStatus();
    const nlohmann::json measured = {result.error,
                                     result.latency_us,
                                     result.gigabytes_per_second,
                                     result.shared_memory_error,
                                     result.shared_memory_latency_us,
                                     result.shared_memory_gigabytes_per_second};
    return store_.Set(Key("pair", from, to), measured.dump());
  }

  StatusOr<PairResult> ResultOf(int from, int to) {
    AIT_ASSIGN_OR_RETURN(const std::string text, store_.Get(Key("pair", from, to), Patient()));
    const nlohmann::json measured = nlohmann::json::parse(text);
    PairResult result = About(from, to);
    result.error = measured[0];
    result.latency_us = measured[1];
    result.gigabytes_per_second = measured[2];
    result.shared_memory_error = measured[3];
    result.shared_memory_latency_us = measured[4];
    result.shared_memory_gigabytes_per_second = measured[5];
    return result;
  }

  Status Connect(const nlohmann::json& place, PairResult& result) {
    AIT_ASSIGN_OR_RETURN(const Address address, ParseAddress(place["address"], place["port"]));
    const Socket peer(socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    SetTimeout(peer.fd(), options_.timeout);
    if (connect(peer.fd(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) !=
        0) {
      return Failure("connect");
    }
    const std::int32_t own = options_.rank.value();
    AIT_RETURN_IF_ERROR(SendAll(peer.fd(), &own, sizeof(own)));
    std::vector<double> halves;
    for (int i = 0; i < kRoundTrips; ++i) {
      char byte = 1;
      const auto begin = SteadyClock::now();
      AIT_RETURN_IF_ERROR(SendAll(peer.fd(), &byte, 1));
      AIT_RETURN_IF_ERROR(ReceiveAll(peer.fd(), &byte, 1));
      halves.push_back(Microseconds(SteadyClock::now() - begin) / 2);
    }
    std::sort(halves.begin(), halves.end());
    result.latency_us = halves[halves.size() / 2];
    // Pieces for a while, then the end of sending; the answer says that all has come.
    const std::vector<char> piece(kPiece, 'x');
    double bytes = 0;
    const auto begin = SteadyClock::now();
    while (SteadyClock::now() - begin < kSendFor) {
      AIT_RETURN_IF_ERROR(SendAll(peer.fd(), piece.data(), piece.size()));
      bytes += static_cast<double>(piece.size());
    }
    shutdown(peer.fd(), SHUT_WR);
    char byte = 0;
    AIT_RETURN_IF_ERROR(ReceiveAll(peer.fd(), &byte, 1));
    result.gigabytes_per_second = bytes / Microseconds(SteadyClock::now() - begin) / 1e3;
    return OkStatus();
  }

  Status Answer(int from) {
    const Deadline deadline = Deadline::After(options_.timeout);
    while (true) {
      pollfd waiting = {listener_.fd(), POLLIN, 0};
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline.remaining());
      if (poll(&waiting, 1, static_cast<int>(std::max<std::int64_t>(0, left.count()))) <= 0) {
        return DeadlineExceededError("rank ", from, " did not connect");
      }
      const Socket peer(accept4(listener_.fd(), nullptr, nullptr, SOCK_CLOEXEC));
      if (peer.fd() < 0) return Failure("accept");
      SetTimeout(peer.fd(), options_.timeout);
      std::int32_t rank = -1;
      AIT_RETURN_IF_ERROR(ReceiveAll(peer.fd(), &rank, sizeof(rank)));
      if (rank != from) continue;  // of an earlier pair that was given up, or a stranger
      char byte = 0;
      for (int i = 0; i < kRoundTrips; ++i) {
        AIT_RETURN_IF_ERROR(ReceiveAll(peer.fd(), &byte, 1));
        AIT_RETURN_IF_ERROR(SendAll(peer.fd(), &byte, 1));
      }
      std::vector<char> piece(kPiece);
      while (true) {
        const ssize_t got = recv(peer.fd(), piece.data(), piece.size(), 0);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return Failure("receive");
        if (got == 0) return SendAll(peer.fd(), &byte, 1);
      }
    }
  }

  Status ShareMemory(int from, int to, PairResult& result) {
    AIT_ASSIGN_OR_RETURN(
        std::unique_ptr<Transport> transport,
        JoinSharedMemory(store_, Key("shm", from, to), Rank(options_.rank.value() == from ? 0 : 1),
                         WorldSize(2), Deadline::After(options_.timeout)));
    Communicator both(std::move(transport));
    AIT_ASSIGN_OR_RETURN(HostBuffer memory, HostBuffer::Create(both.memory(), 16 * kPiece));
    memory.Zero();
    const Buffer bytes = View(memory.As<std::uint8_t>());
    const Communicator::Options options = {
        .timeout = std::chrono::ceil<std::chrono::milliseconds>(options_.timeout)};
    AIT_RETURN_IF_ERROR(both.Broadcast(bytes, Rank(0), options).Wait());
    std::vector<double> barriers, copies;
    for (int i = 0; i < kRoundTrips; ++i) {
      const auto begin = SteadyClock::now();
      AIT_RETURN_IF_ERROR(both.Barrier(options).Wait());
      barriers.push_back(Microseconds(SteadyClock::now() - begin));
    }
    for (int i = 0; i < 7; ++i) {
      const auto begin = SteadyClock::now();
      AIT_RETURN_IF_ERROR(both.Broadcast(bytes, Rank(0), options).Wait());
      copies.push_back(Microseconds(SteadyClock::now() - begin));
    }
    std::sort(barriers.begin(), barriers.end());
    std::sort(copies.begin(), copies.end());
    result.shared_memory_latency_us = barriers[barriers.size() / 2];
    result.shared_memory_gigabytes_per_second =
        static_cast<double>(memory.size_bytes()) / copies[copies.size() / 2] / 1e3;
    return both.Barrier(options).Wait();
  }

  Store& store_;
  const ProbeOptions& options_;
  Socket listener_;
  std::vector<nlohmann::json> places_;  // by rank
};

}  // namespace

std::vector<std::vector<std::pair<int, int>>> ProbeRounds(const std::vector<std::string>& hosts) {
  const int size = static_cast<int>(hosts.size());
  std::vector<std::vector<std::pair<int, int>>> rounds;
  std::map<std::string, std::vector<bool>> busy;  // by host: in which rounds
  const auto host_of = [&](int rank) {
    const std::string& host = hosts[static_cast<std::size_t>(rank)];
    return host.empty() ? StrCat("rank ", rank) : host;
  };
  for (int distance = 1; distance < size; ++distance) {
    for (int from = 0; from < size; ++from) {
      const int to = (from + distance) % size;
      std::vector<bool>& ours = busy[host_of(from)];
      std::vector<bool>& theirs = busy[host_of(to)];
      std::size_t round = 0;
      while (round < rounds.size() && (ours[round] || theirs[round])) ++round;
      if (round == rounds.size()) {
        rounds.emplace_back();
        for (int rank = 0; rank < size; ++rank) busy[host_of(rank)].resize(rounds.size());
      }
      rounds[round].emplace_back(from, to);
      ours[round] = theirs[round] = true;
    }
  }
  return rounds;
}

StatusOr<std::vector<PairResult>> ProbePairs(Store& store, const ProbeOptions& options) {
  return Prober(store, options).Run();
}

}  // namespace ait::cli

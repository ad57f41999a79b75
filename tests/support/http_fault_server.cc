// SPDX-License-Identifier: Apache-2.0
#include "support/http_fault_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "support/http_exchange_internal.h"

namespace ait::testing {

struct HttpFaultServer::Impl {
  using Kind = HttpFault::Kind;

  explicit Impl(HttpFaultServerOptions with) : options(std::move(with)) {
    listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    if (bind(listener, reinterpret_cast<sockaddr*>(&address), length) == 0 &&
        listen(listener, 128) == 0 &&
        getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) == 0) {
      port = ntohs(address.sin_port);
    }
    acceptor = std::thread([this] { Accept(); });
  }

  ~Impl() {
    {
      const std::scoped_lock lock(mutex);
      stopping = true;
      for (const int fd : connections) shutdown(fd, SHUT_RDWR);
    }
    changed.notify_all();
    acceptor.join();
    for (std::thread& thread : threads) thread.join();
    close(listener);
  }

  void Accept() {
    while (true) {
      pollfd wait = {.fd = listener, .events = POLLIN, .revents = 0};
      poll(&wait, 1, 20);
      const std::scoped_lock lock(mutex);
      if (stopping) return;
      if ((wait.revents & POLLIN) == 0) continue;
      const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
      if (fd < 0) continue;
      const int on = 1;
      setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      connections.push_back(fd);
      ++connection_count;
      threads.emplace_back([this, fd] { Serve(fd); });
    }
  }

  void Serve(int fd) {
    std::string buffer;
    while (ReadRequest(fd, buffer)) {
    }
    const std::scoped_lock lock(mutex);
    connections.remove(fd);
    close(fd);
  }

  // Waits, unless the server ends before.
  void Pause(std::chrono::milliseconds time) {
    std::unique_lock lock(mutex);
    changed.wait_for(lock, time, [this] { return stopping; });
  }
  // Until the other side has gone, or the server ends.
  void PauseUntilGone(int fd) {
    while (true) {
      pollfd wait = {.fd = fd, .events = POLLIN | POLLRDHUP, .revents = 0};
      poll(&wait, 1, 20);
      const std::scoped_lock lock(mutex);
      if (stopping || (wait.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) return;
    }
  }

  static bool Send(int fd, std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent <= 0) return false;
      bytes.remove_prefix(static_cast<std::size_t>(sent));
    }
    return true;
  }

  static bool Receive(int fd, std::string& buffer) {
    char bytes[65536];
    const ssize_t count = recv(fd, bytes, sizeof(bytes), 0);
    if (count <= 0) return false;
    buffer.append(bytes, static_cast<std::size_t>(count));
    return true;
  }

  // Reads a request and answers it; false if the connection is to be closed.
  bool ReadRequest(int fd, std::string& buffer) {
    std::size_t head_end;
    while ((head_end = buffer.find("\r\n\r\n")) == std::string::npos) {
      if (!Receive(fd, buffer)) return false;
    }
    HttpSeen seen;
    const std::string_view head(buffer.data(), head_end);
    const std::string_view first = head.substr(0, head.find("\r\n"));
    seen.method = first.substr(0, first.find(' '));
    seen.target = first.substr(seen.method.size() + 1, first.rfind(' ') - seen.method.size() - 1);
    for (std::size_t at = first.size() + 2; at < head.size();) {
      const std::string_view line = head.substr(at, head.find("\r\n", at) - at);
      at += line.size() + 2;
      const std::size_t colon = line.find(':');
      std::string name(line.substr(0, colon));
      std::transform(name.begin(), name.end(), name.begin(),
                     [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
      const std::size_t value = line.find_first_not_of(' ', colon + 1);
      seen.headers[name] = value == std::string_view::npos ? "" : line.substr(value);
    }
    std::size_t body = 0;
    if (const auto length = seen.headers.find("content-length"); length != seen.headers.end()) {
      body = std::stoul(length->second);
    }
    while (buffer.size() < head_end + 4 + body) {
      if (!Receive(fd, buffer)) return false;
    }
    seen.body = buffer.substr(head_end + 4, body);
    buffer.erase(0, head_end + 4 + body);
    return Answer(fd, seen);
  }

  // The fault that befalls this request.
  std::pair<bool, HttpFault> TakeFault(const HttpSeen& seen) {
    const std::scoped_lock lock(mutex);
    for (auto fault = faults.rbegin(); fault != faults.rend(); ++fault) {
      if (fault->times == 0 || (!fault->method.empty() && fault->method != seen.method) ||
          seen.target.find(fault->contains) == std::string::npos) {
        continue;
      }
      if (fault->after > 0) {
        --fault->after;
        continue;
      }
      if (fault->times > 0) --fault->times;
      return {true, *fault};
    }
    return {false, {}};
  }

  void Record(HttpSeen seen, int status) {
    const std::scoped_lock lock(mutex);
    seen.status = status;
    requests.push_back(std::move(seen));
  }

  bool Answer(int fd, const HttpSeen& seen) {
    const auto [has_fault, fault] = TakeFault(seen);
    const auto is = [&](Kind kind) { return has_fault && fault.kind == kind; };
    if (is(Kind::kDropBefore) || is(Kind::kStallBefore) || is(Kind::kGarbage)) {
      Record(seen, 0);
      if (is(Kind::kStallBefore)) PauseUntilGone(fd);
      if (is(Kind::kGarbage)) Send(fd, "what is this?\r\n\r\n");
      return false;
    }
    if (is(Kind::kDelay)) Pause(fault.delay);
    HttpReply reply;
    if (is(Kind::kStatus)) {
      reply.status = fault.status;
      reply.body = fault.body;
      for (const std::string& header : fault.headers) {
        const std::size_t colon = header.find(": ");
        reply.headers.emplace_back(header.substr(0, colon), header.substr(colon + 2));
      }
    } else if (is(Kind::kRedirect)) {
      reply.status = 302;
      reply.headers.emplace_back("Location", fault.location);
    } else {
      reply = AnswerRequest(options, objects, seen, has_fault ? &fault : nullptr);
    }
    Record(seen, reply.status);
    if (reply.is_object && is(Kind::kCorrupt)) {
      reply.body[static_cast<std::size_t>(fault.at_byte)] ^= 1;
    }
    if (is(Kind::kTruncate)) reply.body.resize(static_cast<std::size_t>(fault.at_byte));
    std::string head = "HTTP/1.1 " + std::to_string(reply.status) + " Status\r\n";
    for (const auto& [name, value] : reply.headers) head += name + ": " + value + "\r\n";
    if (seen.method != "HEAD" || !reply.is_object) {
      head += "Content-Length: " + std::to_string(reply.body.size()) + "\r\n";
    }
    head += "\r\n";
    if (seen.method == "HEAD") return Send(fd, head);
    const std::string_view part =
        std::string_view(reply.body).substr(0, static_cast<std::size_t>(fault.at_byte));
    if (is(Kind::kDropAt) || is(Kind::kStallAt)) {
      Send(fd, head + std::string(part));
      if (is(Kind::kStallAt)) PauseUntilGone(fd);
      return false;
    }
    if (!Send(fd, head)) return false;
    if (!is(Kind::kTrickle)) return Send(fd, reply.body);
    for (const char& c : reply.body) {
      Pause(fault.delay);
      if (!Send(fd, {&c, 1})) return false;
    }
    return true;
  }

  const HttpFaultServerOptions options;
  int listener = -1;
  int port = 0;
  ServedObjects objects;
  mutable std::mutex mutex;
  std::condition_variable changed;
  bool stopping = false;
  std::list<int> connections;
  int connection_count = 0;
  std::vector<HttpFault> faults;
  std::vector<HttpSeen> requests;
  std::list<std::thread> threads;
  std::thread acceptor;
};

HttpFaultServer::HttpFaultServer(HttpFaultServerOptions options)
    : impl_(std::make_unique<Impl>(std::move(options))) {}
HttpFaultServer::~HttpFaultServer() = default;

int HttpFaultServer::port() const { return impl_->port; }
std::string HttpFaultServer::url() const {
  return "http://127.0.0.1:" + std::to_string(impl_->port);
}

void HttpFaultServer::Put(const std::string& path, std::string bytes) {
  const std::scoped_lock lock(impl_->objects.mutex);
  impl_->objects.objects[path] = std::move(bytes);
}
std::string HttpFaultServer::Get(const std::string& path) const {
  const std::scoped_lock lock(impl_->objects.mutex);
  const auto found = impl_->objects.objects.find(path);
  return found == impl_->objects.objects.end() ? "" : found->second;
}
std::vector<std::string> HttpFaultServer::paths() const {
  const std::scoped_lock lock(impl_->objects.mutex);
  std::vector<std::string> paths;
  for (const auto& [path, bytes] : impl_->objects.objects) paths.push_back(path);
  return paths;
}
void HttpFaultServer::Remove(const std::string& path) {
  const std::scoped_lock lock(impl_->objects.mutex);
  impl_->objects.objects.erase(path);
}

void HttpFaultServer::Add(HttpFault fault) {
  const std::scoped_lock lock(impl_->mutex);
  impl_->faults.push_back(std::move(fault));
}
void HttpFaultServer::ClearFaults() {
  const std::scoped_lock lock(impl_->mutex);
  impl_->faults.clear();
}
void HttpFaultServer::Forget() {
  const std::scoped_lock lock(impl_->mutex);
  impl_->requests.clear();
}
int HttpFaultServer::request_count() const { return static_cast<int>(requests().size()); }
int HttpFaultServer::connection_count() const {
  const std::scoped_lock lock(impl_->mutex);
  return impl_->connection_count;
}
std::vector<HttpSeen> HttpFaultServer::requests() const {
  const std::scoped_lock lock(impl_->mutex);
  return impl_->requests;
}

}  // namespace ait::testing

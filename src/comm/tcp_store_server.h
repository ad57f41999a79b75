// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_TCP_STORE_SERVER_H_
#define AIT_COMM_TCP_STORE_SERVER_H_

// The serving half of TcpStore: one thread of rank 0 that polls all connections.
//
// Every rank, rank 0 too, is a client with one connection. A connection that has not said a valid
// hello is a stranger: it may send one small frame within ten seconds and is else closed. A rank's
// connection that closes without a goodbye means that the rank died.

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "ait/base/clock.h"
#include "ait/base/log.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/store.h"
#include "comm/tcp_store_frame.h"
#include "comm/tcp_store_socket.h"

namespace ait::inline v0::internal {

class TcpStoreServer {
 public:
  struct Options {
    WorldSize size{1};
    std::string run_id;
    std::chrono::milliseconds timeout{};  // until all ranks have joined
    LogSink* log = nullptr;
  };

  /// Serves strangers that come to `listener`, and rank 0 at the other end of `own`.
  static StatusOr<std::unique_ptr<TcpStoreServer>> Create(SocketFd listener, SocketFd own,
                                                          Options options);
  /// Waits up to a second for the other ranks' goodbyes, says its own to those that stay, and ends.
  ~TcpStoreServer();

  /// The address of this host at which a rank of another host reached the server, else of the
  /// loopback interface; "" while nobody came.
  std::string reached_at() const;

 private:
  enum class Phase { kStranger, kMember, kClosing };
  struct Connection {
    SocketFd fd;
    Phase phase = Phase::kStranger;
    int rank = -1;
    bool own = false;  // rank 0's end, which is no stranger even before its hello
    bool goodbye = false;
    bool closed = false;
    Time hello_by{};
    std::string who;  // "pid 7 on host h"
    std::string in, out;
  };
  struct Waiter {
    Connection* connection;
    std::uint64_t id;
  };

  TcpStoreServer(SocketFd listener, SocketFd own, SocketFd wake, Options options);

  void Run();
  void Poll();
  void Accept();
  void Read(Connection& connection);
  void Handle(Connection& connection, const Frame& frame);
  void HandleHello(Connection& connection, const Frame& frame);
  void HandleRequest(Connection& connection, const Frame& frame);
  void Refuse(Connection& connection, const std::string& why);
  void Send(Connection& connection, const Frame& frame);
  void Flush(Connection& connection);
  void Close(Connection& connection);
  void Broadcast(const Frame& frame);
  void FailJoin(const Status& status);
  void CheckTimers();
  bool OthersLeft() const;
  std::string MissingRanks() const;

  const Options options_;
  SocketFd listener_, wake_, stop_;
  std::vector<std::unique_ptr<Connection>> connections_;
  std::vector<Connection*> members_;  // by rank; null while it has not come or after it left
  std::vector<bool> came_;
  std::shared_ptr<Store> values_ = MakeProcessStore();
  std::map<std::string, std::vector<Waiter>> waiters_;
  std::vector<std::string> refused_;  // the last few, for the message of a failed join
  Deadline join_deadline_;
  Deadline stop_deadline_ = Deadline::Infinite();
  Time accept_again_{};
  bool joined_ = false;
  Status join_error_;
  mutable std::mutex mutex_;
  std::string reached_at_;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_TCP_STORE_SERVER_H_

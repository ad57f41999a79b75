// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_TCP_STORE_CLIENT_H_
#define AIT_COMM_TCP_STORE_CLIENT_H_

// The asking half of TcpStore: one connection, one thread that reads it, requests by number.
//
// Callbacks (watches, departures) run on the reading thread, one at a time and without a lock of
// the client; a request that they make is refused. A request of which only a part could be sent
// loses the connection.

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "ait/base/clock.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "comm/tcp_store_frame.h"
#include "comm/tcp_store_socket.h"

namespace ait::inline v0::internal {

class TcpStoreClient {
 public:
  struct Options {
    Rank rank;
    WorldSize size{1};
    std::string run_id;
    std::string server;                    // "rank 0 at 10.0.0.1 port 29400", for messages
    std::chrono::milliseconds patience{};  // for one reply, and less after one that did not come
  };

  /// Says hello on `fd` and waits for the answer. Unavailable: closed without one, which a server
  /// that has not started or is about to end does too; FailedPrecondition: refused, or not a store.
  static StatusOr<std::unique_ptr<TcpStoreClient>> Create(SocketFd fd, Options options,
                                                          Deadline deadline);
  /// Says goodbye.
  ~TcpStoreClient();

  /// Waits until all ranks have joined.
  Status AwaitJoin(Deadline deadline);

  /// Sends a request and waits for the reply, at most until `deadline`.
  StatusOr<Frame> Ask(Frame request, Deadline deadline);
  /// The same, with the patience of the options.
  StatusOr<Frame> Ask(Frame request);
  /// OK if the server answers within a second, DeadlineExceeded if not.
  Status CheckAnswers();

  std::uint64_t Watch(std::string_view key, std::function<void(std::string)> callback);
  void Unwatch(std::uint64_t watch);
  void OnDeparture(std::function<void(Rank)> callback);
  std::vector<Rank> departed() const;
  std::string local_address() const { return LocalAddress(fd_.get()); }

 private:
  struct Call {
    bool done = false;
    StatusOr<Frame> reply = Frame{};
    std::function<void(std::string)> callback;  // of a watch
    std::string key;
  };
  using Calls = std::map<std::uint64_t, std::shared_ptr<Call>>;

  TcpStoreClient(SocketFd fd, SocketFd wake, SocketFd stop, Options options);

  Status SendFrame(const Frame& frame, Deadline deadline);
  Deadline Patience() const;
  StatusOr<Frame> ReadFirst(Deadline deadline);
  void Run();
  void Receive();
  void Handle(Frame frame);
  void Finish(std::uint64_t id, StatusOr<Frame> reply);
  void Lose(const Status& why);
  void Depart(Rank rank);
  void RunCallbacks();
  bool OnReader() const { return std::this_thread::get_id() == reader_id_.load(); }

  const Options options_;
  SocketFd fd_, wake_, stop_;
  std::string in_;  // of the reading thread

  std::mutex send_mutex_;
  Status half_sent_;  // why nothing can be sent any more; guarded by send_mutex_
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Calls calls_;
  std::uint64_t next_id_ = 1;
  bool joined_ = false;
  bool server_left_ = false;
  Status lost_;  // why no request can succeed any more
  std::vector<Rank> departed_;
  std::size_t told_ = 0;  // departures that the callback has had
  std::function<void(Rank)> on_departure_;
  bool in_departure_ = false;
  std::uint64_t in_watch_ = 0;                               // the watch whose callback runs
  std::deque<std::pair<std::uint64_t, std::string>> fired_;  // watches to call
  Calls fired_calls_;
  std::atomic<bool> stalled_{false};  // the last request was not answered
  std::atomic<std::thread::id> reader_id_{};
  std::thread reader_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_TCP_STORE_CLIENT_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_TCP_STORE_H_
#define AIT_COMM_TCP_STORE_H_

// The control plane of a run: a `Store` over TCP, served by rank 0, that also knows who is alive.
//
// Every rank keeps one connection to the server, which notices at once when a process dies (its
// socket closes) and tells the others who it was. The server itself is rank 0: when it goes, every
// rank sees that directly. Frames are length-prefixed and carry request numbers; several threads
// may use one client. Keys and values together are at most 1 MiB long.
//
//   AIT_ASSIGN_OR_RETURN(auto store, TcpStore::Create({.rank = rank, .size = size,
//                                                      .host = "10.0.0.1", .port = 29400}));
//   for (Rank dead : store->departed()) …       // ranks that died without saying goodbye
//
// **Errors.** (of all calls) Unavailable: rank 0 is gone; DeadlineExceeded: rank 0 does not answer;
// FailedPrecondition: a request was made inside a callback of the same process's store, whose
// thread would wait for itself.

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/log.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/store.h"

namespace ait::inline v0 {

struct TcpStoreOptions {
  Rank rank;
  WorldSize size{1};
  /// Where rank 0 serves; a name or a numeric address. On rank 0 itself: "localhost", "::1" and
  /// "127.…" serve this host alone, anything else (also nothing, and a name that this host alone
  /// takes for loopback) every interface. "unix:NAME" is a socket without port or file, for ranks
  /// of one host and user: nobody else can have taken it, and nothing of it outlives rank 0.
  std::string host;
  std::uint16_t port = 0;  // 0 on rank 0 lets the system choose; see TcpStore::port
  /// Where rank 0 serves if `port` is another program's, in this order; the same on all ranks.
  std::vector<std::uint16_t> other_ports = {};
  /// Rank 0: an inherited socket that already listens; owned by `Create`, also if it fails. What is
  /// no such socket is left alone.
  int listen_fd = -1;
  /// Same on all ranks, new for every attempt: a rank of an earlier attempt is refused. At most 255
  /// bytes.
  std::string run_id;
  /// Until every rank has joined. Names are resolved by the system, which has time-outs of its own:
  /// where no resolver answers, a call may last longer by those.
  std::chrono::milliseconds timeout = std::chrono::minutes(1);
  /// Until rank 0 has answered for the first time; 0: like `timeout`, which bounds it too.
  std::chrono::milliseconds answer_timeout{0};
  LogSink* log = nullptr;
};

class TcpStore final : public Store {
 public:
  /// **Collective. Blocks.** Until all ranks have joined.
  /// **Errors.** DeadlineExceeded names the ranks that did not come (on every rank that did);
  /// FailedPrecondition: the port is in use, a rank joined twice, or run id or world size differ.
  static StatusOr<std::unique_ptr<TcpStore>> Create(const TcpStoreOptions& options);
  /// Says goodbye, so that leaving is not taken for dying. Rank 0 waits up to a second for the
  /// others'.
  ~TcpStore() override;

  Status Set(std::string_view key, std::string_view value) override;
  /// DeadlineExceeded tells whether nobody set the key or rank 0 does not answer; the latter takes
  /// up to a second longer.
  StatusOr<std::string> Get(std::string_view key, Deadline deadline) override;
  StatusOr<std::int64_t> Add(std::string_view key, std::int64_t amount) override;
  StatusOr<bool> Contains(std::string_view key) override;

  /// The port that rank 0 serves at.
  std::uint16_t port() const;

  /// Ranks that died: their connection closed without a goodbye. In order of death.
  std::vector<Rank> departed() const;

  /// Calls `callback(rank)` for every rank that has died or dies later, on a thread of the store.
  /// Replaces an earlier callback; an empty one stops. After return the old callback is not
  /// running, unless this call comes from inside it. The callback must not wait and makes no
  /// requests; it may drop the store, which then ends in the background.
  void OnDeparture(std::function<void(Rank)> callback);

  /// Calls `callback(value)` once, on a thread of the store, when `key` is set; at once if it is
  /// set already, never if the store goes first. Returns a number for `Unwatch`. For the callback
  /// the rules of `OnDeparture` hold.
  std::uint64_t Watch(std::string_view key, std::function<void(std::string)> callback);

  /// Takes a `Watch` back. After return its callback is not running, unless this call comes from
  /// inside it.
  void Unwatch(std::uint64_t watch);

  /// The numeric address by which the other ranks reach this host: of this end of the connection to
  /// rank 0; on rank 0, the one that others came to. Empty for a world of one.
  std::string local_address() const;

 private:
  class Impl;
  explicit TcpStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ait::inline v0

#endif  // AIT_COMM_TCP_STORE_H_

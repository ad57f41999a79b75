// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TENSOR_GLOO_LINK_H_
#define AIT_TENSOR_GLOO_LINK_H_

// Connections among the ranks of one group: bytes out, bytes in, through libtorch's
// c10d::ProcessGroupGloo.
//
// Gloo's own time-outs close every connection of the process, so none is used: a wait lasts until
// the bytes have moved, the connection breaks, or somebody interrupts the link.
//
// This header includes no libtorch and no Gloo; gloo_link.cc is the only file that does.

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "ait/base/clock.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/tcp_store.h"

namespace ait::inline v0::internal {

/// A network interface that Gloo listens at, with its thread. Groups share one.
class GlooDevice {
 public:
  /// By name of the interface if that is not empty, else by numeric address.
  static StatusOr<std::shared_ptr<GlooDevice>> Create(const std::string& interface_name,
                                                      const std::string& address);
  virtual ~GlooDevice() = default;
};

class GlooLink {
 public:
  /// One send or receive that was posted. Destroying it before it is done takes its memory back
  /// from Gloo; the connection is then of no more use.
  class Piece;
  using PiecePtr = std::shared_ptr<Piece>;

  struct Options {
    std::shared_ptr<GlooDevice> device;
    std::shared_ptr<TcpStore> store;
    std::string name;           // of the group; unique in the run
    Rank rank;                  // in the group
    std::vector<Rank> members;  // by rank in the group: rank in the world
  };

  /// **Collective. Blocks.** Over the members, until all are connected.
  static StatusOr<std::unique_ptr<GlooLink>> Connect(Options options, Deadline deadline);
  ~GlooLink();

  /// Posts a message. Messages of one pair and tag arrive in order; both ends give the same size,
  /// more than 0. `tag` < 2^30. **Thread-safety.** Any thread.
  StatusOr<PiecePtr> Send(const void* data, std::int64_t bytes, int peer, std::uint32_t tag);
  StatusOr<PiecePtr> Receive(void* data, std::int64_t bytes, int peer, std::uint32_t tag);

  /// **Blocks.** Until the piece is done. Unavailable: the connection broke, `PeerOf` tells to
  /// whom; Cancelled: interrupted.
  Status Await(Piece& piece);
  static int PeerOf(const Piece& piece);

  /// Ends the wait for one piece, now or when it comes.
  void Interrupt(Piece& piece);
  /// Ends all waits, and those that come.
  void Interrupt();

 private:
  class Impl;
  explicit GlooLink(std::unique_ptr<Impl> impl);
  PiecePtr Register(std::unique_ptr<Piece> piece);

  std::unique_ptr<Impl> impl_;
  std::mutex mutex_;
  bool interrupted_ = false;
  std::set<Piece*> pieces_;  // that are posted
};

}  // namespace ait::inline v0::internal

#endif  // AIT_TENSOR_GLOO_LINK_H_

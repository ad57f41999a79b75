// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_PAIR_LINK_H_
#define AIT_COMM_PAIR_LINK_H_

// Connections among the ranks of one group: bytes out, bytes in. What an engine has to give to
// become a transport; the rest (collectives, messages, deadlines, failures) is in the other pair_*
// files.

#include <cstdint>
#include <memory>

#include "ait/base/status.h"

namespace ait::inline v0::internal {

/// **Thread-safety.** Any thread.
class PairLink {
 public:
  /// One send or receive that was posted. Destroying it before it is done takes its memory back, as
  /// far as the engine can; the link is then of no more use.
  class Piece {
   public:
    explicit Piece(int peer) : peer_(peer) {}
    virtual ~Piece() = default;
    /// The rank that it is sent to or received from.
    int peer() const { return peer_; }

   private:
    int peer_;
  };
  using PiecePtr = std::shared_ptr<Piece>;

  virtual ~PairLink() = default;

  /// Posts a message. Messages of one pair and tag arrive in order; both ends give the same size,
  /// more than 0. `tag` < 2^30. A send need not end before the other end receives.
  virtual StatusOr<PiecePtr> Send(const void* data, std::int64_t bytes, int peer,
                                  std::uint32_t tag) = 0;
  virtual StatusOr<PiecePtr> Receive(void* data, std::int64_t bytes, int peer,
                                     std::uint32_t tag) = 0;

  /// **Blocks.** Until the piece is done. Unavailable: the connection to its peer broke; Cancelled:
  /// interrupted.
  virtual Status Await(Piece& piece) = 0;

  /// Ends the wait for one piece, now or when it comes.
  virtual void Interrupt(Piece& piece) = 0;
  /// Ends all waits, and those that come.
  virtual void Interrupt() = 0;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_PAIR_LINK_H_

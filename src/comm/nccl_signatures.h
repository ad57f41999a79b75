// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_NCCL_SIGNATURES_H_
#define AIT_COMM_NCCL_SIGNATURES_H_

// Signatures of collectives, gathered by NCCL in the stream of the operation itself, before it.
//
// NCCL compares nothing: ranks that differ hang or get wrong numbers. The 8 bytes that every rank
// gives here match whatever the operations are, and tell as soon as the last rank has come.

#include <cstdint>
#include <memory>
#include <span>

#include "ait/base/status.h"
#include "ait/comm/operation.h"
#include "ait/device/stream.h"
#include "comm/nccl_calls.h"
#include "comm/nccl_staging.h"

namespace ait::inline v0::internal {

class NcclSignatures {
 public:
  /// Operations that may be in flight.
  static constexpr int kSlots = 16;

  static StatusOr<NcclSignatures> Create(const std::shared_ptr<NcclArena>& arena, int size);

  /// Gathers the `signature` of all ranks into `slot`; there once the stream is past.
  Status Gather(int slot, const NcclComm& comm, Stream& stream, std::uint64_t signature,
                const KeepGoing& keep_going);
  std::span<const std::uint64_t> Gathered(int slot) const;

  /// Of an all-to-all: tells every rank how many elements it is sent.
  Status ExchangeCounts(int slot, const NcclComm& comm, Stream& stream, const Operation& operation,
                        const KeepGoing& keep_going);
  std::span<const std::uint64_t> ExchangedCounts(int slot) const;

 private:
  NcclSignatures(NcclArena::Piece piece, int size) : piece_(std::move(piece)), size_(size) {}

  // A slot is words: the signatures of all, the own, the counts sent, the counts received.
  std::int64_t Words() const { return 3 * std::int64_t{size_} + 1; }
  std::int64_t At(int slot, std::int64_t word) const { return (slot * Words() + word) * 8; }

  NcclArena::Piece piece_;
  int size_;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_NCCL_SIGNATURES_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_PAIR_COLLECTIVES_H_
#define AIT_COMM_PAIR_COLLECTIVES_H_

// The collectives, made of messages between pairs.
//
// Every message of an operation carries a tag made of its sequence number and signature, so ranks
// that mean different operations do not understand each other wrongly: they wait, and the group
// finds out why (pair_group.h).

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/operation.h"
#include "comm/pair_link.h"

namespace ait::inline v0::internal {

/// Carries out the collectives of one rank, one at a time. Used by one thread.
class CollectiveRunner {
 public:
  virtual ~CollectiveRunner() = default;
  /// **Blocks.** Until the operation is done. **Errors.** Those of PairLink, with `failed_peer` set;
  /// InvalidArgument: the ranks do not fit together.
  virtual Status Run(const Operation& operation) = 0;
  /// The rank to which the connection broke; -1 if the error was another.
  virtual int failed_peer() const = 0;
};

class PairCollectives final : public CollectiveRunner {
 public:
  /// `segment`: bytes that are sent and summed at a time.
  PairCollectives(PairLink& link, Rank rank, WorldSize size, Bytes segment);

  Status Run(const Operation& operation) override;
  int failed_peer() const override { return failed_peer_; }

  /// **Blocks.** Until all ranks have come to this operation, with the same signature; nothing of it
  /// has begun then.
  Status Meet(const Operation& operation);

 private:
  void SetTag(const Operation& operation);
  /// Messages in flight, and the first error of posting one.
  class Batch;
  /// Tags of one operation: two streams, so that results overtake inputs that are still under way.
  enum class Stream : std::uint32_t { kInput = 0, kResult = 1 };

  Status Barrier();
  Status Broadcast(const Operation& operation);
  Status AllReduce(const Operation& operation);
  Status AllReduceSmall(const Operation& operation);
  Status AllReduceLarge(const Operation& operation);
  Status ReduceScatter(const Operation& operation);
  Status AllGather(const Operation& operation);
  Status AllToAll(const Operation& operation);
  Status CheckOwnPart(const Operation& operation) const;
  Status CompareParts(const Operation& operation);
  Status Gather(const Operation& operation);
  Status Scatter(const Operation& operation);

  /// Parts of a reduction: elements [begin(r), begin(r) + count(r)) belong to rank r.
  struct Parts {
    std::vector<std::int64_t> begin, count;
  };
  static Parts PartsOf(std::span<const std::int64_t> counts);
  Parts EqualParts(std::int64_t count, DType dtype) const;

  /// Reduces `input` so that this rank's part comes to `output`, segment by segment; calls
  /// `reduced(begin, length)` (within the part) after each.
  template <typename Reduced>
  Status ReduceParts(const Operation& operation, const Parts& parts, const Buffer& output,
                     Batch& batch, Reduced&& reduced);

  /// Elements a segment of a reduction; the same on all ranks.
  std::int64_t StepOf(const Parts& parts, DType dtype) const;
  /// Posts a buffer in messages of `step` elements, 0: of a segment.
  void SendAll(Batch& batch, const ConstBuffer& buffer, int peer, Stream stream,
               std::int64_t step = 0);
  void ReceiveAll(Batch& batch, const Buffer& buffer, int peer, Stream stream,
                  std::int64_t step = 0);
  std::byte* Scratch(std::int64_t bytes);
  std::int64_t SegmentCount(DType dtype) const { return segment_bytes_ / SizeOf(dtype); }
  template <typename Visit>
  void ForEachPeer(Visit&& visit) const;

  PairLink& link_;
  const int rank_;
  const int size_;
  const std::int64_t segment_bytes_;
  std::uint32_t tag_ = 0;
  int failed_peer_ = -1;
  std::vector<std::byte> scratch_;  // kept: memory fresh from the system costs much more to touch
};

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_PAIR_COLLECTIVES_H_

// SPDX-License-Identifier: Apache-2.0
#include "comm/pair_collectives.h"

#include <algorithm>
#include <utility>

#include "comm/direct.h"
#include "comm/reduce.h"

namespace ait::inline v0::internal {
namespace {

// A buffer that all ranks together send in less than this many bytes a rank goes whole to every
// peer, and each rank sums alone: one latency instead of two.
constexpr std::int64_t kSmallBytes = 64 << 10;

// Segments of one peer that are under way at a time: some arrive while one is summed.
constexpr std::int64_t kWindow = 4;

// A part has at least two segments, so that there is something to overlap, unless they would be
// smaller than this.
constexpr std::int64_t kLeastSegmentBytes = 128 << 10;

// Bit 29: collectives; the tags below belong to messages (pair_messages.h).
constexpr std::uint32_t kCollective = 1U << 29;

}  // namespace

class PairCollectives::Batch {
 public:
  explicit Batch(PairCollectives& owner) : owner_(owner) {}

  void Send(const ConstBuffer& buffer, int peer, Stream stream) {
    Add(buffer, peer, owner_.link_.Send(buffer.data, buffer.bytes().value(), peer, Tag(stream)));
  }
  void Receive(const Buffer& buffer, int peer, Stream stream) {
    Add(buffer, peer, owner_.link_.Receive(buffer.data, buffer.bytes().value(), peer, Tag(stream)));
  }

  /// Waits for everything that was posted: for the last first, since then most others are over and
  /// this thread is woken once.
  Status Await() {
    for (auto piece = pieces_.rbegin(); piece != pieces_.rend() && status_.ok(); ++piece) {
      status_ = owner_.link_.Await(**piece);
      if (!status_.ok()) owner_.failed_peer_ = (*piece)->peer();
    }
    pieces_.clear();
    return status_;
  }

 private:
  std::uint32_t Tag(Stream stream) const {
    return owner_.tag_ | (static_cast<std::uint32_t>(stream) << 28);
  }
  void Add(const ConstBuffer&, int peer, StatusOr<PairLink::PiecePtr> piece) {
    if (piece.ok()) {
      pieces_.push_back(*std::move(piece));
    } else if (status_.ok()) {
      status_ = piece.status();
      owner_.failed_peer_ = peer;
    }
  }

  PairCollectives& owner_;
  std::vector<PairLink::PiecePtr> pieces_;
  Status status_;
};

PairCollectives::PairCollectives(PairLink& link, Rank rank, WorldSize size, Bytes segment)
    : link_(link), rank_(rank.value()), size_(size.value()), segment_bytes_(segment.value()) {}

template <typename Visit>
void PairCollectives::ForEachPeer(Visit&& visit) const {
  // Everybody begins with another one.
  for (int step = 1; step < size_; ++step) visit((rank_ + step) % size_);
}

std::byte* PairCollectives::Scratch(std::int64_t bytes) {
  if (scratch_.size() < static_cast<std::size_t>(bytes)) {
    scratch_.resize(static_cast<std::size_t>(bytes));
  }
  return scratch_.data();
}

void PairCollectives::SendAll(Batch& batch, const ConstBuffer& buffer, int peer, Stream stream,
                              std::int64_t step) {
  if (step == 0) step = SegmentCount(buffer.dtype);
  for (std::int64_t at = 0; at < buffer.count; at += step) {
    batch.Send(buffer.Slice(at, std::min(step, buffer.count - at)), peer, stream);
  }
}

void PairCollectives::ReceiveAll(Batch& batch, const Buffer& buffer, int peer, Stream stream,
                                 std::int64_t step) {
  if (step == 0) step = SegmentCount(buffer.dtype);
  for (std::int64_t at = 0; at < buffer.count; at += step) {
    batch.Receive(buffer.Slice(at, std::min(step, buffer.count - at)), peer, stream);
  }
}

PairCollectives::Parts PairCollectives::PartsOf(std::span<const std::int64_t> counts) {
  Parts parts;
  std::int64_t begin = 0;
  for (const std::int64_t count : counts) {
    parts.begin.push_back(begin);
    parts.count.push_back(count);
    begin += count;
  }
  return parts;
}

PairCollectives::Parts PairCollectives::EqualParts(std::int64_t count, DType dtype) const {
  // Whole cache lines, so that no line is summed by two ranks.
  const std::int64_t part = RoundUp((count + size_ - 1) / size_, 64 / SizeOf(dtype));
  std::vector<std::int64_t> counts(static_cast<std::size_t>(size_));
  for (int rank = 0; rank < size_; ++rank) {
    counts[static_cast<std::size_t>(rank)] = std::clamp<std::int64_t>(count - part * rank, 0, part);
  }
  return PartsOf(counts);
}

std::int64_t PairCollectives::StepOf(const Parts& parts, DType dtype) const {
  const std::int64_t most =
      *std::max_element(parts.count.begin(), parts.count.end()) * SizeOf(dtype);
  const std::int64_t half = RoundUp(most / 2 + 1, 4096);
  return std::min(segment_bytes_, std::max(half, kLeastSegmentBytes)) / SizeOf(dtype);
}

void PairCollectives::SetTag(const Operation& operation) {
  // 9 bits of the sequence number keep operations apart that follow each other; 19 bits of the
  // signature those that differ.
  const std::uint64_t signature = operation.Signature();
  tag_ = kCollective | (static_cast<std::uint32_t>(operation.sequence & 0x1ff) << 19) |
         static_cast<std::uint32_t>((signature ^ (signature >> 19) ^ (signature >> 38)) & 0x7ffff);
}

Status PairCollectives::Meet(const Operation& operation) {
  failed_peer_ = -1;
  SetTag(operation);
  AIT_RETURN_IF_ERROR(Barrier());
  if (operation.kind != OperationKind::kAllToAll) return OkStatus();
  AIT_RETURN_IF_ERROR(CheckOwnPart(operation));
  AIT_RETURN_IF_ERROR(CompareParts(operation));
  return Barrier();  // whoever saw that parts do not fit is not here
}

Status PairCollectives::Run(const Operation& operation) {
  failed_peer_ = -1;
  SetTag(operation);
  switch (operation.kind) {
    case OperationKind::kBroadcast:
      return Broadcast(operation);
    case OperationKind::kAllReduce:
      return AllReduce(operation);
    case OperationKind::kReduceScatter:
      return ReduceScatter(operation);
    case OperationKind::kAllGather:
      return AllGather(operation);
    case OperationKind::kAllToAll:
      return AllToAll(operation);
    case OperationKind::kGather:
      return Gather(operation);
    case OperationKind::kScatter:
      return Scatter(operation);
    case OperationKind::kBarrier:
      return Barrier();
    case OperationKind::kSend:
    case OperationKind::kReceive:
      break;
  }
  return InternalError("a message is not a collective");
}

// Dissemination: in round k everybody hears from the rank 2^k before, and so of 2^(k+1) ranks.
// D. Hensgen, R. Finkel, U. Manber, Two algorithms for barrier synchronization, 1988.
Status PairCollectives::Barrier() {
  static constexpr std::uint8_t kWord = 1;
  std::uint8_t heard = 0;
  for (int distance = 1; distance < size_; distance *= 2) {
    Batch batch(*this);
    batch.Receive({&heard, 1, DType::kUInt8}, (rank_ - distance + size_) % size_, Stream::kResult);
    batch.Send({&kWord, 1, DType::kUInt8}, (rank_ + distance) % size_, Stream::kResult);
    AIT_RETURN_IF_ERROR(batch.Await());
  }
  return OkStatus();
}

// Rooted operations begin with a barrier: without it, ranks that finish early would not hear that
// others meant something else.
Status PairCollectives::Broadcast(const Operation& operation) {
  AIT_RETURN_IF_ERROR(Barrier());
  const int root = operation.peer.value();
  Batch batch(*this);
  if (rank_ == root) {
    ForEachPeer([&](int peer) { SendAll(batch, operation.input, peer, Stream::kInput); });
  } else {
    ReceiveAll(batch, operation.output, root, Stream::kInput);
  }
  return batch.Await();
}

Status PairCollectives::AllReduce(const Operation& operation) {
  if (operation.output.count == 0) return Barrier();
  if (operation.output.bytes().value() * (size_ - 1) <= kSmallBytes) {
    return AllReduceSmall(operation);
  }
  return AllReduceLarge(operation);
}

Status PairCollectives::AllReduceSmall(const Operation& operation) {
  const Buffer& own = operation.output;
  const std::int64_t bytes = own.bytes().value();
  std::byte* scratch = Scratch(bytes * size_);
  std::vector<const void*> inputs(static_cast<std::size_t>(size_), own.data);
  Batch batch(*this);
  ForEachPeer([&](int peer) {
    void* place = scratch + bytes * peer;
    inputs[static_cast<std::size_t>(peer)] = place;
    batch.Receive({place, own.count, own.dtype}, peer, Stream::kInput);
  });
  ForEachPeer([&](int peer) { batch.Send(own, peer, Stream::kInput); });
  AIT_RETURN_IF_ERROR(batch.Await());
  void* const outputs[] = {own.data};
  ReduceRanks(inputs, outputs, own.count, own.dtype, operation.reduce);
  return OkStatus();
}

// All inputs are posted at once: the engine sends them when the peer has room. What is received
// goes through a window of scratch memory that stays in the cache.
template <typename Reduced>
Status PairCollectives::ReduceParts(const Operation& operation, const Parts& parts,
                                    const Buffer& output, Batch& batch, Reduced&& reduced) {
  const DType dtype = operation.dtype;
  const std::int64_t step = StepOf(parts, dtype);
  const auto self = static_cast<std::size_t>(rank_);
  const std::int64_t own = parts.count[self];
  const std::int64_t stride = RoundUp(step * SizeOf(dtype), 4096);
  std::byte* scratch = Scratch(stride * kWindow * size_);
  const auto slot = [&](std::int64_t at) { return at / step % kWindow; };
  const auto place = [&](std::int64_t at, int peer) -> void* {
    return scratch + stride * (slot(at) * size_ + peer);
  };
  const auto length = [&](std::int64_t at) { return std::min(step, own - at); };

  // One batch a slot: what it receives is awaited before it is summed.
  std::vector<Batch> arriving(static_cast<std::size_t>(kWindow), Batch(*this));
  const auto receive = [&](std::int64_t at) {
    if (at >= own) return;
    ForEachPeer([&](int peer) {
      arriving[static_cast<std::size_t>(slot(at))].Receive({place(at, peer), length(at), dtype},
                                                           peer, Stream::kInput);
    });
  };
  for (std::int64_t segment = 0; segment < kWindow; ++segment) receive(segment * step);
  ForEachPeer([&](int peer) {
    const auto p = static_cast<std::size_t>(peer);
    SendAll(batch, operation.input.Slice(parts.begin[p], parts.count[p]), peer, Stream::kInput,
            step);
  });
  std::vector<const void*> inputs(static_cast<std::size_t>(size_));
  for (std::int64_t at = 0; at < own; at += step) {
    AIT_RETURN_IF_ERROR(arriving[static_cast<std::size_t>(slot(at))].Await());
    for (int peer = 0; peer < size_; ++peer) {
      inputs[static_cast<std::size_t>(peer)] = place(at, peer);
    }
    inputs[self] = operation.input.Slice(parts.begin[self] + at, 0).data;
    void* const outputs[] = {output.Slice(at, 0).data};
    ReduceRanks(inputs, outputs, length(at), dtype, operation.reduce);
    reduced(at, length(at));
    receive(at + step * kWindow);
  }
  return OkStatus();
}

// A peer sends the result of a segment after it has our input of it, so the result may come to the
// memory from which that input was sent.
Status PairCollectives::AllReduceLarge(const Operation& operation) {
  const Buffer& all = operation.output;
  const Parts parts = EqualParts(all.count, all.dtype);
  const auto part = [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    return all.Slice(parts.begin[r], parts.count[r]);
  };
  Batch batch(*this);
  const std::int64_t step = StepOf(parts, all.dtype);
  ForEachPeer([&](int peer) { ReceiveAll(batch, part(peer), peer, Stream::kResult, step); });
  const Buffer own = part(rank_);
  AIT_RETURN_IF_ERROR(
      ReduceParts(operation, parts, own, batch, [&](std::int64_t at, std::int64_t length) {
        ForEachPeer([&](int peer) { batch.Send(own.Slice(at, length), peer, Stream::kResult); });
      }));
  return batch.Await();
}

Status PairCollectives::ReduceScatter(const Operation& operation) {
  const Parts parts = PartsOf(operation.counts);
  if (operation.input.count == 0) return Barrier();
  Batch batch(*this);
  AIT_RETURN_IF_ERROR(
      ReduceParts(operation, parts, operation.output, batch, [](std::int64_t, std::int64_t) {}));
  return batch.Await();
}

Status PairCollectives::AllGather(const Operation& operation) {
  if (operation.output.count == 0) return Barrier();
  const Parts parts = PartsOf(operation.counts);
  const auto part = [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    return operation.output.Slice(parts.begin[r], parts.count[r]);
  };
  Batch batch(*this);
  ForEachPeer([&](int peer) { ReceiveAll(batch, part(peer), peer, Stream::kInput); });
  ForEachPeer([&](int peer) { SendAll(batch, operation.input, peer, Stream::kInput); });
  CopyElements(operation.input, part(rank_));
  return batch.Await();
}

// The signature cannot hold the counts of an all-to-all, which differ from rank to rank.
Status PairCollectives::CompareParts(const Operation& operation) {
  std::vector<std::int64_t> theirs(static_cast<std::size_t>(size_));
  Batch batch(*this);
  ForEachPeer([&](int peer) {
    const auto p = static_cast<std::size_t>(peer);
    batch.Receive({&theirs[p], 1, DType::kInt64}, peer, Stream::kResult);
    batch.Send({&operation.counts[p], 1, DType::kInt64}, peer, Stream::kResult);
  });
  AIT_RETURN_IF_ERROR(batch.Await());
  for (int peer = 0; peer < size_; ++peer) {
    const auto p = static_cast<std::size_t>(peer);
    if (peer == rank_ || theirs[p] == operation.receive_counts[p]) continue;
    return InvalidArgumentError("rank ", peer, " sends ", theirs[p], " elements to rank ", rank_,
                                ", which expects ", operation.receive_counts[p]);
  }
  return OkStatus();
}

Status PairCollectives::CheckOwnPart(const Operation& operation) const {
  const auto self = static_cast<std::size_t>(rank_);
  if (operation.counts[self] != operation.receive_counts[self]) {
    return InvalidArgumentError("rank ", rank_, " sends ", operation.counts[self],
                                " elements to rank ", rank_, ", which expects ",
                                operation.receive_counts[self]);
  }
  return OkStatus();
}

Status PairCollectives::AllToAll(const Operation& operation) {
  const auto self = static_cast<std::size_t>(rank_);
  AIT_RETURN_IF_ERROR(CheckOwnPart(operation));
  AIT_RETURN_IF_ERROR(CompareParts(operation));
  const Parts sent = PartsOf(operation.counts), received = PartsOf(operation.receive_counts);
  const auto out = [&](std::size_t p) {
    return operation.input.Slice(sent.begin[p], sent.count[p]);
  };
  const auto in = [&](std::size_t p) {
    return operation.output.Slice(received.begin[p], received.count[p]);
  };
  Batch batch(*this);
  ForEachPeer([&](int peer) {
    ReceiveAll(batch, in(static_cast<std::size_t>(peer)), peer, Stream::kInput);
  });
  ForEachPeer(
      [&](int peer) { SendAll(batch, out(static_cast<std::size_t>(peer)), peer, Stream::kInput); });
  CopyElements(out(self), in(self));
  return batch.Await();
}

Status PairCollectives::Gather(const Operation& operation) {
  AIT_RETURN_IF_ERROR(Barrier());
  const int root = operation.peer.value();
  Batch batch(*this);
  if (rank_ != root) {
    SendAll(batch, operation.input, root, Stream::kInput);
    return batch.Await();
  }
  const Parts parts = PartsOf(operation.counts);
  const auto part = [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    return operation.output.Slice(parts.begin[r], parts.count[r]);
  };
  ForEachPeer([&](int peer) { ReceiveAll(batch, part(peer), peer, Stream::kInput); });
  CopyElements(operation.input, part(rank_));
  return batch.Await();
}

Status PairCollectives::Scatter(const Operation& operation) {
  AIT_RETURN_IF_ERROR(Barrier());
  const int root = operation.peer.value();
  Batch batch(*this);
  if (rank_ != root) {
    ReceiveAll(batch, operation.output, root, Stream::kInput);
    return batch.Await();
  }
  const Parts parts = PartsOf(operation.counts);
  const auto part = [&](int rank) {
    const auto r = static_cast<std::size_t>(rank);
    return operation.input.Slice(parts.begin[r], parts.count[r]);
  };
  ForEachPeer([&](int peer) { SendAll(batch, part(peer), peer, Stream::kInput); });
  CopyElements(part(rank_), operation.output);
  return batch.Await();
}

}  // namespace ait::inline v0::internal

// SPDX-License-Identifier: Apache-2.0
#include "comm/shm_collective.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

#include "comm/direct.h"
#include "comm/operation_compare.h"
#include "comm/reduce.h"

namespace ait::inline v0::internal {
namespace {

/// Whether peers read the input of `rank` (for an all-reduce: read and write its buffer).
bool IsShared(const Operation& operation, int rank) {
  switch (operation.kind) {
    case OperationKind::kBroadcast:
    case OperationKind::kScatter:
      return operation.peer.value() == rank;
    case OperationKind::kGather:
      return operation.peer.value() != rank;
    case OperationKind::kBarrier:
      return false;
    default:
      return true;
  }
}

bool HasCounts(OperationKind kind) {
  return kind != OperationKind::kBroadcast && kind != OperationKind::kAllReduce &&
         kind != OperationKind::kBarrier;
}

std::uint64_t Pack(const Operation& operation) {
  return static_cast<std::uint64_t>(operation.kind) |
         static_cast<std::uint64_t>(operation.reduce) << 8 |
         static_cast<std::uint64_t>(operation.dtype) << 16 |
         static_cast<std::uint64_t>(static_cast<std::uint32_t>(operation.peer.value())) << 32;
}

}  // namespace

ShmCollective::ShmCollective(ShmGroup& group)
    : group_(group), rank_(group.rank()), size_(group.size()), round_(group.start()) {
  const auto size = static_cast<std::size_t>(size_);
  inputs_.reserve(size);
  outputs_.reserve(size + 1);
  views_.resize(size);
  for (const Operation& view : views_) all_.push_back(&view);
}

void ShmCollective::Begin(const Operation& operation) {
  At(ShmPhase::kArriving);
  operation_ = &operation;
  first_ = true;
  at_ = 0;
  chunks_ = 0;
  taking_results_ = false;
  place_ = static_cast<int>((round_ + 1) & 1);
  ShmLine& line = group_.own();
  const auto relaxed = std::memory_order_relaxed;
  const auto bytes = static_cast<std::size_t>(operation.input.bytes().value());
  std::uint64_t where = kNothing;
  if (IsShared(operation, rank_) && bytes > 0) {
    where = group_.fabric().OffsetOf(operation.input.data, bytes);
  }
  line.signature[place_].store(check_signatures_ ? operation.Signature() : 0, relaxed);
  line.where[place_].store(where, relaxed);
  line.what.store(Pack(operation), relaxed);
  line.count.store(static_cast<std::uint64_t>(HasCounts(operation.kind) && !operation.counts.empty()
                                                  ? operation.counts[0]
                                                  : operation.output.count),
                   relaxed);
  line.sequence.store(operation.sequence, relaxed);
  line.since.store(std::chrono::steady_clock::now().time_since_epoch().count(), relaxed);
  StoreText(line.label, std::size(line.label), operation.label);
  if (operation.kind == OperationKind::kAllToAll) {
    std::ranges::copy(operation.counts, group_.counts(rank_, place_).begin());
    std::ranges::copy(operation.receive_counts, group_.receive_counts(rank_, place_).begin());
  }
  if (where == kForeign) {
    PlanStaged();
    ++round_;
    Stage();
    --round_;
  }
  Arrive();
}

void ShmCollective::Arrive() {
  ++round_;
  next_ = 0;
  state_ = State::kArriving;
  group_.Publish(group_.own().arrived, round_);
  At(ShmPhase::kArrived);
}

bool ShmCollective::HasMet() {
  for (; next_ < size_; ++next_) {
    const ShmLine& line = group_.line(next_);
    const auto& word = state_ == State::kArriving ? line.arrived : line.done;
    // Not only acquire: a rank that has announced its sleep must not have looked before that.
    if (!Reached(word.load(std::memory_order_seq_cst), round_)) return false;
  }
  return true;
}

ShmCollective::Progress ShmCollective::Advance() {
  if (!HasMet()) return Progress::kWaiting;
  if (state_ == State::kFinishing) {
    At(ShmPhase::kDone);
    return Progress::kDone;
  }
  return first_ ? MetFirst() : Met();
}

ShmCollective::Progress ShmCollective::MetFirst() {
  bool any_direct = false;
  bool any_foreign = false;
  const std::uint64_t signature = group_.own().signature[place_].load(std::memory_order_relaxed);
  for (int peer = 0; peer < size_; ++peer) {
    const ShmLine& line = group_.line(peer);
    if (line.signature[place_].load(std::memory_order_relaxed) != signature) {
      return Progress::kMismatch;
    }
    const std::uint64_t where = line.where[place_].load(std::memory_order_relaxed);
    const bool foreign = where == kForeign;
    any_foreign |= foreign;
    any_direct |= !foreign && where != kNothing;
  }
  if (operation_->kind == OperationKind::kAllToAll) {
    all_counts_.clear();
    for (int from = 0; from < size_; ++from) {
      for (int to = 0; to < size_; ++to) {
        const auto at = static_cast<std::size_t>(to);
        const std::int64_t sent = group_.counts(from, place_)[at];
        all_counts_.push_back(sent);
        if (sent != group_.receive_counts(to, place_)[static_cast<std::size_t>(from)]) {
          return Progress::kMismatch;
        }
      }
    }
  }
  is_direct_ = !any_foreign;
  // Peers may have given up and taken their buffers back. Whoever breaks the group looks at
  // `arrived` after that; so one of the two sees the other. What touches no buffer of a peer, ends.
  const bool touches_peers = is_direct_ && operation_->kind != OperationKind::kBarrier;
  if (touches_peers && group_.broken()) return Progress::kWaiting;
  first_ = false;
  if (is_direct_) {
    At(ShmPhase::kMet);
    RunDirect();
    At(ShmPhase::kRan);
    if (operation_->kind == OperationKind::kBarrier) {
      group_.own().done.store(round_, std::memory_order_relaxed);
      return Progress::kDone;
    }
    group_.Publish(group_.own().done, round_);
    state_ = State::kFinishing;
    next_ = 0;
    return Progress::kMoved;
  }
  if (chunks_ == 0) PlanStaged();
  if (any_direct) {  // some have not staged the first chunk: all do, and meet again
    ++round_;
    Stage();
    --round_;
    Arrive();
    return Progress::kMoved;
  }
  return Met();
}

// A round of a staged operation.
ShmCollective::Progress ShmCollective::Met() {
  At(ShmPhase::kMet);
  Take();
  At(ShmPhase::kRan);
  const bool results_follow = in_slices_ && !taking_results_;
  if (!results_follow) ++at_;
  if (!results_follow && at_ == chunks_) {
    group_.own().done.store(round_, std::memory_order_relaxed);
    return Progress::kDone;
  }
  taking_results_ = results_follow;
  if (!results_follow) {
    ++round_;
    Stage();
    --round_;
  }
  Arrive();
  return Progress::kMoved;
}

void ShmCollective::RunDirect() {
  if (operation_->kind == OperationKind::kBarrier) return;
  if (operation_->kind == OperationKind::kAllReduce) return ReduceDirect();
  for (int peer = 0; peer < size_; ++peer) {
    const auto at = static_cast<std::size_t>(peer);
    if (peer == rank_) {
      all_[at] = operation_;
      continue;
    }
    Operation& view = views_[at];
    all_[at] = &view;
    view.dtype = operation_->dtype;
    view.input.dtype = operation_->dtype;
    view.input.data =
        group_.At(peer, group_.line(peer).where[place_].load(std::memory_order_relaxed), 0);
    if (operation_->kind == OperationKind::kAllToAll) {
      const auto row = all_counts_.begin() + static_cast<std::ptrdiff_t>(at) * size_;
      view.counts.assign(row, row + size_);
    }
  }
  RunPart(all_, Rank(rank_));
}

void ShmCollective::ReduceDirect() {
  const ConstBuffer& buffer = operation_->input;
  const Piece slice = SliceOf({0, buffer.count}, rank_);
  if (slice.length == 0) return;
  inputs_.clear();
  outputs_.clear();
  const std::int64_t skip = slice.begin * SizeOf(buffer.dtype);
  for (int peer = 0; peer < size_; ++peer) {
    std::byte* const data =
        group_.At(peer, group_.line(peer).where[place_].load(std::memory_order_relaxed), 0) + skip;
    inputs_.push_back(data);
    outputs_.push_back(data);
  }
  ReduceRanks(inputs_, outputs_, slice.length, buffer.dtype, operation_->reduce);
}

// The slice that `rank` owns: whole pages of large pieces, whole cache lines of small ones.
ShmCollective::Piece ShmCollective::SliceOf(Piece piece, int rank) const {
  constexpr std::int64_t kPage = 4096;
  constexpr std::int64_t kLine = 64;
  const std::int64_t size = SizeOf(operation_->dtype);
  const std::int64_t granule = piece.length * size >= 8 * kPage * size_ ? kPage : kLine;
  const std::int64_t slice = RoundUp((piece.length + size_ - 1) / size_, granule / size);
  const std::int64_t begin = std::min(piece.length, slice * rank);
  return {piece.begin + begin, std::min(piece.length - begin, slice)};
}

std::int64_t ShmCollective::LargestCount(std::span<const std::int64_t> counts, int except) const {
  std::int64_t largest = 0;
  for (int rank = 0; rank < size_; ++rank) {
    if (rank != except) largest = std::max(largest, counts[static_cast<std::size_t>(rank)]);
  }
  return largest;
}

// How a staged operation is cut; the same on all ranks.
void ShmCollective::PlanStaged() {
  constexpr std::int64_t kSmall = 32 << 10;
  const Operation& operation = *operation_;
  const std::int64_t fits =
      static_cast<std::int64_t>(group_.member_layout().quarter) / SizeOf(operation.dtype);
  const std::int64_t fits_each = std::max<std::int64_t>(1, fits / size_ / 64 * 64);
  std::int64_t longest = operation.output.count;
  in_slices_ = false;
  chunk_ = fits;
  switch (operation.kind) {
    case OperationKind::kAllReduce:
      in_slices_ = operation.output.bytes().value() > kSmall && size_ > 3;
      break;
    case OperationKind::kReduceScatter:
      longest = LargestCount(operation.counts, /*except=*/-1);
      chunk_ = fits_each;
      break;
    case OperationKind::kAllGather:
      longest = LargestCount(operation.counts, /*except=*/-1);
      break;
    case OperationKind::kGather:
      longest = LargestCount(operation.counts, operation.peer.value());
      break;
    case OperationKind::kScatter:
      longest = LargestCount(operation.counts, operation.peer.value());
      chunk_ = fits_each;
      break;
    case OperationKind::kAllToAll:
      longest = 0;  // known when the counts of all ranks are
      chunk_ = fits_each;
      break;
    default:
      break;
  }
  chunks_ = std::max<std::int64_t>(1, (longest + chunk_ - 1) / chunk_);
  if (!operation.counts.empty()) {
    offsets_.assign(operation.counts.size(), 0);
    std::exclusive_scan(operation.counts.begin(), operation.counts.end(), offsets_.begin(),
                        std::int64_t{0});
  }
}

std::byte* ShmCollective::Slot(int rank) const {
  return group_.member(rank) + (round_ & 1) * group_.member_layout().quarter;
}

std::byte* ShmCollective::Result(int rank) const {
  // Of the round before this one, while results are taken.
  const std::uint64_t round = taking_results_ ? round_ - 1 : round_;
  return group_.member(rank) + (2 + (round & 1)) * group_.member_layout().quarter;
}

ShmCollective::Piece ShmCollective::PieceOf(std::int64_t count) const {
  const std::int64_t begin = std::min(count, at_ * chunk_);
  return {begin, std::min(count - begin, chunk_)};
}

// Piece `at_` of every other rank's part, each in its place of the slot.
void ShmCollective::StageParts(std::span<const std::int64_t> counts) {
  const std::int64_t size = SizeOf(operation_->dtype);
  for (int to = 0; to < size_; ++to) {
    if (to == rank_) continue;
    const auto at = static_cast<std::size_t>(to);
    const Piece piece = PieceOf(counts[at]);
    CopyElements(operation_->input.Slice(offsets_[at] + piece.begin, piece.length),
                 {Slot(rank_) + to * chunk_ * size, piece.length, operation_->dtype});
  }
}

// What this rank gives of the current chunk.
void ShmCollective::Stage() {
  const Operation& operation = *operation_;
  const std::int64_t size = SizeOf(operation.dtype);
  const auto stage = [&](Piece piece, std::int64_t skip) {
    CopyElements(operation.input.Slice(piece.begin, piece.length),
                 {Slot(rank_) + skip * size, piece.length, operation.dtype});
  };
  switch (operation.kind) {
    case OperationKind::kAllReduce: {
      const Piece piece = PieceOf(operation.input.count);
      if (!in_slices_) return stage(piece, 0);
      const Piece own = SliceOf(piece, rank_);
      const std::int64_t end = own.begin + own.length;
      stage({piece.begin, own.begin - piece.begin}, 0);
      stage({end, piece.begin + piece.length - end}, end - piece.begin);
      return;
    }
    case OperationKind::kReduceScatter:
    case OperationKind::kAllToAll:
      return StageParts(operation.counts);
    case OperationKind::kScatter:
      if (rank_ == operation.peer.value()) StageParts(operation.counts);
      return;
    case OperationKind::kGather:
      if (rank_ == operation.peer.value()) return;
      return stage(PieceOf(operation.input.count), 0);
    case OperationKind::kAllGather:
      return stage(PieceOf(operation.input.count), 0);
    case OperationKind::kBroadcast:
      if (rank_ == operation.peer.value()) stage(PieceOf(operation.input.count), 0);
      return;
    default:
      return;
  }
}

// What this rank gets of the current chunk.
void ShmCollective::Take() {
  const Operation& operation = *operation_;
  const DType dtype = operation.dtype;
  const std::int64_t size = SizeOf(dtype);
  const auto self = static_cast<std::size_t>(rank_);
  const auto take = [&](int from, std::int64_t skip, Piece to) {
    CopyElements({Slot(from) + skip * size, to.length, dtype},
                 operation.output.Slice(to.begin, to.length), StoresOf(operation.output.bytes()));
  };
  switch (operation.kind) {
    case OperationKind::kAllReduce: {
      const Piece piece = PieceOf(operation.output.count);
      if (taking_results_) {
        for (int from = 0; from < size_; ++from) {
          if (from == rank_) continue;
          const Piece slice = SliceOf(piece, from);
          CopyElements({Result(from), slice.length, dtype},
                       operation.output.Slice(slice.begin, slice.length));
        }
        return;
      }
      const Piece slice = in_slices_ ? SliceOf(piece, rank_) : piece;
      if (slice.length == 0) return;
      const Buffer own = operation.output.Slice(slice.begin, slice.length);
      inputs_.clear();
      outputs_.assign(1, own.data);
      if (in_slices_) outputs_.push_back(Result(rank_));
      for (int from = 0; from < size_; ++from) {
        const std::int64_t skip = (slice.begin - piece.begin) * size;
        inputs_.push_back(from == rank_ ? own.data : Slot(from) + skip);
      }
      return ReduceRanks(inputs_, outputs_, slice.length, dtype, operation.reduce);
    }
    case OperationKind::kReduceScatter: {
      const Piece piece = PieceOf(operation.counts[self]);
      if (piece.length == 0) return;
      inputs_.clear();
      outputs_.assign(1, operation.output.Slice(piece.begin, piece.length).data);
      for (int from = 0; from < size_; ++from) {
        inputs_.push_back(from == rank_
                              ? operation.input.Slice(offsets_[self] + piece.begin, 0).data
                              : Slot(from) + rank_ * chunk_ * size);
      }
      ReduceRanks(inputs_, outputs_, piece.length, dtype, operation.reduce);
      if (operation.on_reduced) operation.on_reduced(piece.begin, piece.length);
      return;
    }
    case OperationKind::kAllGather:
    case OperationKind::kGather:
      if (operation.kind == OperationKind::kGather && rank_ != operation.peer.value()) return;
      for (int from = 0; from < size_; ++from) {
        const auto at = static_cast<std::size_t>(from);
        if (from == rank_) {
          if (at_ == 0) {
            CopyElements(operation.input,
                         operation.output.Slice(offsets_[at], operation.counts[at]));
          }
          continue;
        }
        const Piece piece = PieceOf(operation.counts[at]);
        take(from, 0, {offsets_[at] + piece.begin, piece.length});
      }
      return;
    case OperationKind::kBroadcast:
      if (rank_ != operation.peer.value()) {
        take(operation.peer.value(), 0, PieceOf(operation.output.count));
      }
      return;
    case OperationKind::kScatter:
      if (rank_ == operation.peer.value()) {
        if (at_ == 0) {
          CopyElements(operation.input.Slice(offsets_[self], operation.counts[self]),
                       operation.output);
        }
        return;
      }
      return take(operation.peer.value(), rank_ * chunk_, PieceOf(operation.output.count));
    case OperationKind::kAllToAll: {
      if (at_ == 0) {  // only now is it known how far the longest part goes
        const std::int64_t longest = *std::ranges::max_element(all_counts_);
        chunks_ = std::max<std::int64_t>(1, (longest + chunk_ - 1) / chunk_);
      }
      std::int64_t begin = 0;
      for (int from = 0; from < size_; ++from) {
        const auto at = static_cast<std::size_t>(from);
        const std::int64_t count = operation.receive_counts[at];
        if (from == rank_) {
          if (at_ == 0) {
            CopyElements(operation.input.Slice(offsets_[self], count),
                         operation.output.Slice(begin, count));
          }
        } else {
          const Piece piece = PieceOf(count);
          take(from, rank_ * chunk_, {begin + piece.begin, piece.length});
        }
        begin += count;
      }
      return;
    }
    default:
      return;
  }
}

std::vector<int> ShmCollective::Missing() const {
  std::vector<int> missing;
  for (int peer = 0; peer < size_; ++peer) {
    const ShmLine& line = group_.line(peer);
    const auto& word = state_ == State::kArriving ? line.arrived : line.done;
    if (!Reached(word.load(std::memory_order_acquire), round_)) missing.push_back(peer);
  }
  return missing;
}

bool ShmCollective::IsQuiet() const {
  if (!first_ && !is_direct_) return true;  // peers touch staging memory alone
  for (int peer = 0; peer < size_; ++peer) {
    if (peer == rank_) continue;
    const ShmLine& line = group_.line(peer);
    const bool safe = line.ended.load(std::memory_order_seq_cst) != 0 ||
                      !Reached(line.arrived.load(std::memory_order_seq_cst), round_) ||
                      Reached(line.done.load(std::memory_order_seq_cst), round_) ||
                      group_.IsDead(peer);
    if (!safe) return false;
  }
  return true;
}

void ShmCollective::DescribeOwn() {
  ShmText& text = group_.text(rank_);
  std::string description = operation_->Describe();
  description.resize(std::min(description.size(), ShmText::kBytes - 1));
  std::memcpy(text.description, description.c_str(), description.size() + 1);
  text.described.store(1, std::memory_order_seq_cst);
  group_.WakeSleepers();
}

Status ShmCollective::Compare(bool& ready) const {
  std::vector<std::uint64_t> signatures;
  std::vector<std::string> descriptions;
  ready = true;
  for (int peer = 0; peer < size_; ++peer) {
    const ShmText& text = group_.text(peer);
    const bool told = text.described.load(std::memory_order_acquire) != 0;
    ready &= told;
    signatures.push_back(group_.line(peer).signature[place_].load(std::memory_order_relaxed));
    descriptions.push_back(told ? text.description
                                : "another operation, which it did not describe");
  }
  if (Status status = CompareSignatures(signatures, descriptions); !status.ok()) return status;
  std::vector<std::vector<std::int64_t>> sent;
  std::vector<std::vector<std::int64_t>> received;
  for (int peer = 0; peer < size_; ++peer) {
    const auto from = group_.counts(peer, place_);
    const auto to = group_.receive_counts(peer, place_);
    sent.emplace_back(from.begin(), from.end());
    received.emplace_back(to.begin(), to.end());
  }
  return CompareAllToAllCounts(sent, received);
}

}  // namespace ait::inline v0::internal

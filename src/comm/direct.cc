// SPDX-License-Identifier: Apache-2.0
#include "comm/direct.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <vector>

#include "comm/reduce.h"

namespace ait::inline v0::internal {
namespace {

/// Where the part of `rank` begins.
std::int64_t OffsetOf(const std::vector<std::int64_t>& counts, std::size_t rank) {
  return std::accumulate(counts.begin(), counts.begin() + static_cast<std::ptrdiff_t>(rank),
                         std::int64_t{0});
}

/// Reduces elements [begin, begin + length) of every rank's input, as `own` asks.
void ReduceSlice(std::span<const Operation* const> operations, const Operation& own,
                 std::int64_t begin, std::int64_t length, std::span<void* const> outputs,
                 Stores stores) {
  if (length == 0) return;
  std::vector<const void*> inputs;
  for (const Operation* operation : operations) {
    inputs.push_back(operation->input.Slice(begin, length).data);
  }
  if (!own.on_reduced) {
    return ReduceRanks(inputs, outputs, length, own.dtype, own.reduce, stores);
  }
  // In pieces that the first caches hold, so that who is told finds them there.
  constexpr std::int64_t kPiece = 8192;
  const std::int64_t element = SizeOf(own.dtype);
  std::vector<void*> piece(outputs.begin(), outputs.end());
  for (std::int64_t at = 0; at < length; at += kPiece) {
    const std::int64_t count = std::min(kPiece, length - at);
    ReduceRanks(inputs, piece, count, own.dtype, own.reduce, Stores::kCached);
    own.on_reduced(at, count);
    for (const void*& input : inputs)
      input = static_cast<const std::byte*>(input) + count * element;
    for (void*& output : piece) output = static_cast<std::byte*>(output) + count * element;
  }
}

void AllReducePart(std::span<const Operation* const> operations, std::size_t rank) {
  constexpr std::int64_t kGranule = 4096;  // bytes: owners do not share cache lines or pages
  const Buffer& own = operations[rank]->output;
  const auto ranks = static_cast<std::int64_t>(operations.size());
  const std::int64_t slice = RoundUp((own.count + ranks - 1) / ranks, kGranule / SizeOf(own.dtype));
  const std::int64_t begin = std::min(own.count, slice * static_cast<std::int64_t>(rank));
  const std::int64_t length = std::min(own.count - begin, slice);
  std::vector<void*> outputs;
  for (const Operation* operation : operations) {
    outputs.push_back(operation->output.Slice(begin, length).data);
  }
  ReduceSlice(operations, *operations[rank], begin, length, outputs, Stores::kCached);
}

}  // namespace

void CopyElements(const ConstBuffer& from, const Buffer& to, Stores stores) {
  if (to.count == 0 || to.data == from.data) return;
  CopyBytes(to.data, from.data, static_cast<std::size_t>(to.bytes().value()), stores);
}

void RunPart(std::span<const Operation* const> operations, Rank rank) {
  const auto self = static_cast<std::size_t>(rank.value());
  const Operation& own = *operations[self];
  const auto root = static_cast<std::size_t>(own.peer.value());
  const Stores stores = StoresOf(own.output.bytes());
  switch (own.kind) {
    case OperationKind::kBroadcast:
      return CopyElements(operations[root]->input, own.output, stores);
    case OperationKind::kAllReduce:
      return AllReducePart(operations, self);
    case OperationKind::kReduceScatter: {
      void* const output[] = {own.output.data};
      const std::int64_t begin = OffsetOf(own.counts, self);
      const bool in_place = own.input.Slice(begin, 0).data == own.output.data;
      return ReduceSlice(operations, own, begin, own.counts[self], output,
                         in_place ? Stores::kCached : StoresOf(own.output.bytes()));
    }
    case OperationKind::kAllGather:
      for (std::size_t from = 0; from < operations.size(); ++from) {
        CopyElements(operations[from]->input,
                     own.output.Slice(OffsetOf(own.counts, from), own.counts[from]), stores);
      }
      return;
    case OperationKind::kAllToAll:
      for (std::size_t from = 0; from < operations.size(); ++from) {
        const std::vector<std::int64_t>& sent = operations[from]->counts;
        CopyElements(operations[from]->input.Slice(OffsetOf(sent, self), sent[self]),
                     own.output.Slice(OffsetOf(own.receive_counts, from), sent[self]), stores);
      }
      return;
    case OperationKind::kGather:
      for (std::size_t from = 0; self == root && from < operations.size(); ++from) {
        CopyElements({operations[from]->input.data, own.counts[from], own.dtype},
                     own.output.Slice(OffsetOf(own.counts, from), own.counts[from]), stores);
      }
      return;
    case OperationKind::kScatter:
      return CopyElements(
          operations[root]->input.Slice(OffsetOf(own.counts, self), own.counts[self]), own.output,
          stores);
    case OperationKind::kSend:
    case OperationKind::kReceive:
    case OperationKind::kBarrier:
      return;
  }
}

}  // namespace ait::inline v0::internal

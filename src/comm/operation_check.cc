// SPDX-License-Identifier: Apache-2.0
#include "comm/operation_check.h"

#include <cstdint>
#include <limits>
#include <string_view>

namespace ait::inline v0::internal {
namespace {

Status CheckBuffer(const ConstBuffer& buffer, std::string_view name) {
  if (static_cast<int>(buffer.dtype) >= kDTypeCount) {
    return InvalidArgumentError(name, " has the unknown dtype number ",
                                static_cast<int>(buffer.dtype));
  }
  if (buffer.count < 0) {
    return InvalidArgumentError(name, " has ", buffer.count, " elements; a count is not negative");
  }
  if (buffer.count > std::numeric_limits<std::int64_t>::max() / SizeOf(buffer.dtype)) {
    return InvalidArgumentError(name, " has ", buffer.count, " elements of ", SizeOf(buffer.dtype),
                                " bytes, which do not fit 64 bits");
  }
  if (buffer.count > 0 && buffer.data == nullptr) {
    return InvalidArgumentError(name, " has ", buffer.count, " elements and no address");
  }
  if (reinterpret_cast<std::uintptr_t>(buffer.data) % static_cast<unsigned>(SizeOf(buffer.dtype)) !=
      0) {
    return InvalidArgumentError(name, " is not aligned to its ", Name(buffer.dtype), " elements");
  }
  return OkStatus();
}

/// Checks that `counts` are `size` parts, and that they make `whole` if this rank has it.
Status CheckParts(const std::vector<std::int64_t>& counts, WorldSize size, const ConstBuffer* whole,
                  std::string_view name) {
  if (static_cast<std::int64_t>(counts.size()) != size.value()) {
    return InvalidArgumentError(counts.size(), " counts for ", size, " ranks; give one per rank");
  }
  std::int64_t sum = 0;
  for (std::size_t rank = 0; rank < counts.size(); ++rank) {
    if (counts[rank] < 0) {
      return InvalidArgumentError("count ", counts[rank], " for rank ", rank, " is negative");
    }
    if (__builtin_add_overflow(sum, counts[rank], &sum)) {
      return InvalidArgumentError("the sum of the counts does not fit 64 bits");
    }
  }
  if (whole != nullptr && sum != whole->count) {
    return InvalidArgumentError(name, " has ", whole->count, " elements, but its ", size,
                                " parts make ", sum);
  }
  return OkStatus();
}

Status CheckPart(const std::vector<std::int64_t>& counts, Rank rank, const ConstBuffer& part,
                 std::string_view name) {
  const std::int64_t count = counts[static_cast<std::size_t>(rank.value())];
  if (part.count == count) return OkStatus();
  return InvalidArgumentError(name, " has ", part.count,
                              " elements, but the part of this rank has ", count);
}

bool Overlap(const ConstBuffer& a, const ConstBuffer& b) {
  if (a.count == 0 || b.count == 0) return false;
  const auto a_begin = reinterpret_cast<std::uintptr_t>(a.data);
  const auto b_begin = reinterpret_cast<std::uintptr_t>(b.data);
  return a_begin < b_begin + static_cast<std::uintptr_t>(b.bytes().value()) &&
         b_begin < a_begin + static_cast<std::uintptr_t>(a.bytes().value());
}

/// `part` may lie in `whole` only as the part of `rank`.
Status CheckOwnPartOrApart(const std::vector<std::int64_t>& counts, Rank rank,
                           const ConstBuffer& whole, const ConstBuffer& part) {
  if (!Overlap(whole, part)) return OkStatus();
  std::int64_t offset = 0;
  for (int r = 0; r < rank.value(); ++r) offset += counts[static_cast<std::size_t>(r)];
  if (part.data == whole.Slice(offset, part.count).data) return OkStatus();
  return InvalidArgumentError(
      "input and output overlap and are not in place; the smaller may only be part ", rank,
      " of the larger, which begins at its element ", offset);
}

Status CheckPeer(const Operation& operation, Rank rank, WorldSize size) {
  const std::string_view name = operation.kind == OperationKind::kSend      ? "destination"
                                : operation.kind == OperationKind::kReceive ? "source"
                                                                            : "root";
  if (operation.peer.value() < 0 || operation.peer.value() >= size.value()) {
    return InvalidArgumentError(name, " ", operation.peer, " is no rank of this group, which has ",
                                size, " ranks");
  }
  if (name != "root" && operation.peer == rank) {
    return InvalidArgumentError(name, " is this rank itself; copy the memory instead");
  }
  return OkStatus();
}

Status CheckReduction(const Operation& operation) {
  if (operation.reduce > ReduceOp::kProduct) {
    return InvalidArgumentError("reduction number ", static_cast<int>(operation.reduce),
                                " is unknown");
  }
  if (operation.reduce == ReduceOp::kAverage && !IsFloatingPoint(operation.dtype)) {
    return InvalidArgumentError("an average is not defined for ", Name(operation.dtype),
                                "; reduce by sum and divide as the program needs");
  }
  return OkStatus();
}

Status Check(const Operation& operation, Rank rank, WorldSize size) {
  const ConstBuffer& input = operation.input;
  const ConstBuffer output = operation.output;
  const bool is_root = operation.peer == rank;
  const auto both = [&] {
    if (Status status = CheckBuffer(input, "input"); !status.ok()) return status;
    if (Status status = CheckBuffer(output, "output"); !status.ok()) return status;
    if (input.dtype == output.dtype) return OkStatus();
    return InvalidArgumentError("input is ", Name(input.dtype), " and output is ",
                                Name(output.dtype), "; they must be equal");
  };
  switch (operation.kind) {
    case OperationKind::kBarrier:
      return OkStatus();
    case OperationKind::kBroadcast:
      AIT_RETURN_IF_ERROR(CheckPeer(operation, rank, size));
      return CheckBuffer(output, "buffer");
    case OperationKind::kAllReduce:
      AIT_RETURN_IF_ERROR(CheckBuffer(output, "buffer"));
      return CheckReduction(operation);
    case OperationKind::kReduceScatter:
      AIT_RETURN_IF_ERROR(both());
      AIT_RETURN_IF_ERROR(CheckReduction(operation));
      AIT_RETURN_IF_ERROR(CheckParts(operation.counts, size, &input, "input"));
      AIT_RETURN_IF_ERROR(CheckPart(operation.counts, rank, output, "output"));
      return CheckOwnPartOrApart(operation.counts, rank, input, output);
    case OperationKind::kAllGather:
      AIT_RETURN_IF_ERROR(both());
      AIT_RETURN_IF_ERROR(CheckParts(operation.counts, size, &output, "output"));
      AIT_RETURN_IF_ERROR(CheckPart(operation.counts, rank, input, "input"));
      return CheckOwnPartOrApart(operation.counts, rank, output, input);
    case OperationKind::kAllToAll:
      AIT_RETURN_IF_ERROR(both());
      AIT_RETURN_IF_ERROR(CheckParts(operation.counts, size, &input, "input"));
      AIT_RETURN_IF_ERROR(CheckParts(operation.receive_counts, size, &output, "output"));
      if (const auto self = static_cast<std::size_t>(rank.value());
          operation.counts[self] != operation.receive_counts[self]) {
        return InvalidArgumentError("this rank sends ", operation.counts[self],
                                    " elements to itself, but expects ",
                                    operation.receive_counts[self]);
      }
      if (Overlap(input, output)) {
        return InvalidArgumentError("input and output overlap; all-to-all cannot be in place");
      }
      return OkStatus();
    case OperationKind::kGather:
      AIT_RETURN_IF_ERROR(CheckPeer(operation, rank, size));
      AIT_RETURN_IF_ERROR(is_root ? both() : CheckBuffer(input, "input"));
      AIT_RETURN_IF_ERROR(
          CheckParts(operation.counts, size, is_root ? &output : nullptr, "output"));
      AIT_RETURN_IF_ERROR(CheckPart(operation.counts, rank, input, "input"));
      return is_root ? CheckOwnPartOrApart(operation.counts, rank, output, input) : OkStatus();
    case OperationKind::kScatter:
      AIT_RETURN_IF_ERROR(CheckPeer(operation, rank, size));
      AIT_RETURN_IF_ERROR(is_root ? both() : CheckBuffer(output, "output"));
      AIT_RETURN_IF_ERROR(CheckParts(operation.counts, size, is_root ? &input : nullptr, "input"));
      AIT_RETURN_IF_ERROR(CheckPart(operation.counts, rank, output, "output"));
      return is_root ? CheckOwnPartOrApart(operation.counts, rank, input, output) : OkStatus();
    case OperationKind::kSend:
      AIT_RETURN_IF_ERROR(CheckPeer(operation, rank, size));
      return CheckBuffer(input, "buffer");
    case OperationKind::kReceive:
      AIT_RETURN_IF_ERROR(CheckPeer(operation, rank, size));
      return CheckBuffer(output, "buffer");
  }
  return InvalidArgumentError("operation number ", static_cast<int>(operation.kind), " is unknown");
}

}  // namespace

Status CheckOperation(const Operation& operation, Rank rank, WorldSize size) {
  Status status = Check(operation, rank, size);
  if (status.ok()) return status;
  return Annotate(status, StrCat("rank ", rank, ": ", operation.Describe()));
}

}  // namespace ait::inline v0::internal

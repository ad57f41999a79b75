// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl_calls.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ait::inline v0::internal {
namespace {

using Parts = std::span<const std::int64_t>;

ncclDataType_t TypeOf(DType dtype) {
  switch (dtype) {
    case DType::kUInt8:
    case DType::kBool:
      return ncclUint8;
    case DType::kInt32:
      return ncclInt32;
    case DType::kUInt32:
      return ncclUint32;
    case DType::kInt64:
      return ncclInt64;
    case DType::kFloat16:
      return ncclFloat16;
    case DType::kBFloat16:
      return ncclBfloat16;
    case DType::kFloat32:
      return ncclFloat32;
    case DType::kFloat64:
      return ncclFloat64;
    case DType::kInt8:
    case DType::kInt16:
    case DType::kUInt16:
      break;
  }
  return ncclInt8;
}

ncclRedOp_t OpOf(const Operation& operation) {
  if (operation.dtype == DType::kBool) {  // bytes of 0 and 1: or is their maximum
    const bool is_or = operation.reduce == ReduceOp::kSum || operation.reduce == ReduceOp::kMax;
    return is_or ? ncclMax : ncclMin;
  }
  switch (operation.reduce) {
    case ReduceOp::kSum:
      return ncclSum;
    case ReduceOp::kAverage:
      return ncclAvg;
    case ReduceOp::kMax:
      return ncclMax;
    case ReduceOp::kMin:
      return ncclMin;
    case ReduceOp::kProduct:
      return ncclProd;
  }
  return ncclSum;
}

const void* At(const void* base, std::int64_t bytes) {
  return base == nullptr ? nullptr : static_cast<const std::byte*>(base) + bytes;
}
void* At(void* base, std::int64_t bytes) {
  return base == nullptr ? nullptr : static_cast<std::byte*>(base) + bytes;
}
std::size_t Size(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }

bool AreEqual(Parts counts) {
  return std::all_of(counts.begin(), counts.end(),
                     [&](std::int64_t count) { return count == counts[0]; });
}

/// Calls of one communicator that NCCL launches together.
class Group {
 public:
  Group(const NcclComm& comm, void* stream)
      : comm_(comm), nccl_(comm.library()), stream_(static_cast<cudaStream_t>(stream)) {
    Note(nccl_.ncclGroupStart());
  }

  void Send(const void* from, std::int64_t bytes, int peer) {
    if (bytes > 0) Note(nccl_.ncclSend(from, Size(bytes), ncclInt8, peer, comm_.get(), stream_));
  }
  void Receive(void* to, std::int64_t bytes, int peer) {
    if (bytes > 0) Note(nccl_.ncclRecv(to, Size(bytes), ncclInt8, peer, comm_.get(), stream_));
  }
  void Broadcast(const void* from, void* to, std::int64_t bytes, int root) {
    if (bytes == 0) return;
    Note(nccl_.ncclBroadcast(from, to, Size(bytes), ncclInt8, root, comm_.get(), stream_));
  }
  void Reduce(const void* from, void* to, std::int64_t count, const Operation& operation,
              int root) {
    if (count == 0) return;
    Note(nccl_.ncclReduce(from, to, Size(count), TypeOf(operation.dtype), OpOf(operation), root,
                          comm_.get(), stream_));
  }
  /// Launches what was called. The group is closed also if a call failed.
  Status Launch(std::string_view what, const KeepGoing& keep_going) {
    const ncclResult_t launched = nccl_.ncclGroupEnd();
    AIT_RETURN_IF_ERROR(nccl_.Check(failed_, comm_.get(), what));
    return comm_.Settle(launched, what, keep_going);
  }

 private:
  void Note(ncclResult_t result) {
    if (failed_ == ncclSuccess && result != ncclInProgress) failed_ = result;
  }

  const NcclComm& comm_;
  const NcclLibrary& nccl_;
  const cudaStream_t stream_;
  ncclResult_t failed_ = ncclSuccess;
};

/// Where part `rank` begins, in elements.
std::int64_t OffsetOf(Parts counts, int rank) {
  std::int64_t offset = 0;
  for (int r = 0; r < rank; ++r) offset += counts[static_cast<std::size_t>(r)];
  return offset;
}

}  // namespace

Status CheckReduction(const Operation& operation) {
  const bool reduces = operation.kind == OperationKind::kAllReduce ||
                       operation.kind == OperationKind::kReduceScatter;
  if (!reduces || (operation.dtype != DType::kInt16 && operation.dtype != DType::kUInt16)) {
    return OkStatus();
  }
  return UnimplementedError("NCCL cannot reduce ", Name(operation.dtype),
                            " on the device; use int32, or a buffer of the host");
}

Status EnqueueExchange(const NcclComm& comm, void* stream, const void* input, Parts sent_bytes,
                       void* output, Parts received_bytes, const KeepGoing& keep_going) {
  Group group(comm, stream);
  std::int64_t from = 0;
  std::int64_t to = 0;
  for (std::size_t peer = 0; peer < sent_bytes.size(); ++peer) {
    group.Send(At(input, from), sent_bytes[peer], static_cast<int>(peer));
    group.Receive(At(output, to), received_bytes[peer], static_cast<int>(peer));
    from += sent_bytes[peer];
    to += received_bytes[peer];
  }
  return group.Launch("ncclSend and ncclRecv", keep_going);
}

Status EnqueueAllGather(const NcclComm& comm, void* stream, const void* input, void* output,
                        std::int64_t bytes, const KeepGoing& keep_going) {
  if (bytes == 0) return OkStatus();
  return comm.Settle(comm.library().ncclAllGather(input, output, Size(bytes), ncclInt8, comm.get(),
                                                  static_cast<cudaStream_t>(stream)),
                     "ncclAllGather", keep_going);
}

Status EnqueueCollective(const NcclComm& comm, void* stream, const Operation& operation,
                         const void* input, void* output, int rank, int size,
                         const KeepGoing& keep_going) {
  const NcclLibrary& nccl = comm.library();
  const auto native = static_cast<cudaStream_t>(stream);
  const std::int64_t width = SizeOf(operation.dtype);
  const Parts counts = operation.counts;
  const int root = operation.peer.value();
  const auto all_equal = !counts.empty() && AreEqual(counts);
  const auto bytes_of = [&](int r) { return counts[static_cast<std::size_t>(r)] * width; };
  switch (operation.kind) {
    case OperationKind::kBroadcast:
      if (operation.output.count == 0) return OkStatus();
      return comm.Settle(nccl.ncclBroadcast(input, output, Size(operation.output.bytes().value()),
                                            ncclInt8, root, comm.get(), native),
                         "ncclBroadcast", keep_going);
    case OperationKind::kAllReduce:
      if (operation.output.count == 0) return OkStatus();
      return comm.Settle(
          nccl.ncclAllReduce(input, output, Size(operation.output.count), TypeOf(operation.dtype),
                             OpOf(operation), comm.get(), native),
          "ncclAllReduce", keep_going);
    case OperationKind::kReduceScatter: {
      if (all_equal) {
        if (counts[0] == 0) return OkStatus();
        return comm.Settle(
            nccl.ncclReduceScatter(input, output, Size(counts[0]), TypeOf(operation.dtype),
                                   OpOf(operation), comm.get(), native),
            "ncclReduceScatter", keep_going);
      }
      Group group(comm, stream);
      for (int r = 0; r < size; ++r) {
        group.Reduce(At(input, OffsetOf(counts, r) * width), r == rank ? output : nullptr,
                     counts[static_cast<std::size_t>(r)], operation, r);
      }
      return group.Launch("ncclReduce", keep_going);
    }
    case OperationKind::kAllGather: {
      if (all_equal) {
        return EnqueueAllGather(comm, stream, input, output, bytes_of(0), keep_going);
      }
      Group group(comm, stream);
      for (int r = 0; r < size; ++r) {
        void* part = At(output, OffsetOf(counts, r) * width);
        group.Broadcast(r == rank ? input : part, part, bytes_of(r), r);
      }
      return group.Launch("ncclBroadcast", keep_going);
    }
    case OperationKind::kAllToAll: {
      std::vector<std::int64_t> sent;
      std::vector<std::int64_t> received;
      for (const std::int64_t count : counts) sent.push_back(count * width);
      for (const std::int64_t count : operation.receive_counts) received.push_back(count * width);
      return EnqueueExchange(comm, stream, input, sent, output, received, keep_going);
    }
    case OperationKind::kGather:
    case OperationKind::kScatter: {
      const bool gathers = operation.kind == OperationKind::kGather;
      Group group(comm, stream);
      for (int r = 0; r < size && rank == root; ++r) {
        const std::int64_t offset = OffsetOf(counts, r) * width;
        if (r == rank) {
          const void* from = gathers ? input : At(input, offset);
          void* to = gathers ? At(output, offset) : output;
          if (from == to) continue;
          group.Send(from, bytes_of(r), r);
          group.Receive(to, bytes_of(r), r);
        } else if (gathers) {
          group.Receive(At(output, offset), bytes_of(r), r);
        } else {
          group.Send(At(input, offset), bytes_of(r), r);
        }
      }
      if (rank != root && gathers) group.Send(input, bytes_of(rank), root);
      if (rank != root && !gathers) group.Receive(output, bytes_of(rank), root);
      return group.Launch(gathers ? "ncclRecv of a gather" : "ncclSend of a scatter", keep_going);
    }
    case OperationKind::kBarrier:
    case OperationKind::kSend:
    case OperationKind::kReceive:
      break;
  }
  return OkStatus();
}

}  // namespace ait::inline v0::internal

// SPDX-License-Identifier: Apache-2.0
#include "tensor/c10d_collectives.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "ait/tensor/dtype.h"
#include "tensor/catch.h"

namespace ait::inline v0::internal {
namespace {

using std::chrono::milliseconds;
using Tensors = std::vector<at::Tensor>;

// A backend that acts on time-outs of its own shall do so after the deadline: who ended it is then
// known already.
constexpr milliseconds kLater{2000};

milliseconds TimeOf(const Operation& operation) {
  if (operation.deadline.is_infinite()) return std::chrono::hours(24 * 365);
  return std::max(std::chrono::ceil<milliseconds>(operation.deadline.remaining()),
                  milliseconds(0)) +
         kLater;
}

at::Tensor Over(const ConstBuffer& buffer) {
  return at::from_blob(const_cast<void*>(buffer.data), {buffer.count},
                       at::TensorOptions(ToTorch(buffer.dtype)));
}

// Only moved: any backend knows bytes.
at::Tensor BytesOver(const ConstBuffer& buffer) {
  return at::from_blob(const_cast<void*>(buffer.data), {buffer.bytes().value()},
                       at::TensorOptions(at::kByte));
}

Tensors Parts(const ConstBuffer& buffer, const std::vector<std::int64_t>& counts) {
  Tensors parts;
  std::int64_t begin = 0;
  for (const std::int64_t count : counts) {
    parts.push_back(BytesOver(buffer.Slice(begin, count)));
    begin += count;
  }
  return parts;
}

std::vector<std::int64_t> InBytes(std::vector<std::int64_t> counts, DType dtype) {
  for (std::int64_t& count : counts) count *= SizeOf(dtype);
  return counts;
}

bool AreEqual(const std::vector<std::int64_t>& counts) {
  return std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end();
}

// What libtorch's backends reduce; of others they complain when the operation is under way.
bool IsSummedByAll(DType dtype) {
  switch (dtype) {
    case DType::kBool:
    case DType::kInt16:
    case DType::kUInt16:
    case DType::kUInt32:
      return false;
    default:
      return true;
  }
}

c10d::ReduceOp ToC10d(ReduceOp op) {
  switch (op) {
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
    case ReduceOp::kProduct:
      return c10d::ReduceOp::PRODUCT;
    case ReduceOp::kSum:
    case ReduceOp::kAverage:  // of which few backends know: it is divided here
      break;
  }
  return c10d::ReduceOp::SUM;
}

}  // namespace

C10dCollectives::C10dCollectives(C10dLink& link, Rank rank, WorldSize size, C10dOptions options)
    : link_(link), pairs_(link, rank, size, MiB(1)), rank_(rank), size_(size), options_(options) {}

Status C10dCollectives::Run(const Operation& operation) {
  if (options_.meeting == C10dMeeting::kBefore) {
    AIT_RETURN_IF_ERROR(pairs_.Meet(operation));
    if (operation.kind == OperationKind::kBarrier) return OkStatus();
  }
  if (!IsNative(operation)) return pairs_.Run(operation);
  const Status status = RunNative(operation);
  // All ranks have the same backend, so all of them turn to messages.
  return status.code() == StatusCode::kUnimplemented ? pairs_.Run(operation) : status;
}

bool C10dCollectives::IsNative(const Operation& operation) const {
  switch (operation.kind) {
    case OperationKind::kBarrier:
      return true;
    case OperationKind::kAllReduce:
    case OperationKind::kReduceScatter:
      return options_.sums == C10dSums::kBackend && IsSummedByAll(operation.dtype) &&
             operation.output.count > 0 && AreEqual(operation.counts);
    case OperationKind::kBroadcast:
      return operation.output.count > 0;
    case OperationKind::kAllGather:
    case OperationKind::kGather:
    case OperationKind::kScatter:
      return AreEqual(operation.counts) && operation.counts.front() > 0;
    case OperationKind::kAllToAll:
      return true;
    case OperationKind::kSend:
    case OperationKind::kReceive:
      break;
  }
  return false;
}

Status C10dCollectives::Reduce(const Operation& operation) {
  at::Tensor input = Over(operation.input), output = Over(operation.output);
  AIT_RETURN_IF_ERROR(link_.Run([&](c10d::Backend& backend) {
    if (operation.kind == OperationKind::kAllReduce) {
      c10d::AllreduceOptions options;
      options.reduceOp = ToC10d(operation.reduce);
      options.timeout = TimeOf(operation);
      Tensors tensors = {output};
      return backend.allreduce(tensors, options);
    }
    c10d::ReduceScatterOptions options;
    options.reduceOp = ToC10d(operation.reduce);
    options.timeout = TimeOf(operation);
    return backend._reduce_scatter_base(output, input, options);
  }));
  if (operation.reduce == ReduceOp::kAverage) {
    return CatchAsStatus([&] { output.div_(size_.value()); });
  }
  return OkStatus();
}

Status C10dCollectives::RunNative(const Operation& operation) {
  const milliseconds timeout = TimeOf(operation);
  const std::int64_t root = operation.peer.value();
  const bool is_root = operation.peer == rank_;
  switch (operation.kind) {
    case OperationKind::kAllReduce:
    case OperationKind::kReduceScatter:
      return Reduce(operation);
    case OperationKind::kBroadcast:
      return link_.Run([&](c10d::Backend& backend) {
        c10d::BroadcastOptions options;
        options.rootRank = root;
        options.timeout = timeout;
        Tensors tensors = {BytesOver(operation.output)};
        return backend.broadcast(tensors, options);
      });
    case OperationKind::kAllGather:
      return link_.Run([&](c10d::Backend& backend) {
        c10d::AllgatherOptions options;
        options.timeout = timeout;
        at::Tensor input = BytesOver(operation.input), output = BytesOver(operation.output);
        return backend._allgather_base(output, input, options);
      });
    case OperationKind::kAllToAll:
      return link_.Run([&](c10d::Backend& backend) {
        c10d::AllToAllOptions options;
        options.timeout = timeout;
        at::Tensor input = BytesOver(operation.input), output = BytesOver(operation.output);
        auto sent = InBytes(operation.counts, operation.dtype);
        auto received = InBytes(operation.receive_counts, operation.dtype);
        return backend.alltoall_base(output, input, received, sent, options);
      });
    case OperationKind::kGather:
      return link_.Run([&](c10d::Backend& backend) {
        c10d::GatherOptions options;
        options.rootRank = root;
        options.timeout = timeout;
        std::vector<Tensors> outputs;
        if (is_root) outputs.push_back(Parts(operation.output, operation.counts));
        Tensors inputs = {BytesOver(operation.input)};
        return backend.gather(outputs, inputs, options);
      });
    case OperationKind::kScatter:
      return link_.Run([&](c10d::Backend& backend) {
        c10d::ScatterOptions options;
        options.rootRank = root;
        options.timeout = timeout;
        std::vector<Tensors> inputs;
        if (is_root) inputs.push_back(Parts(operation.input, operation.counts));
        Tensors outputs = {BytesOver(operation.output)};
        return backend.scatter(outputs, inputs, options);
      });
    case OperationKind::kBarrier:
      return link_.Run([&](c10d::Backend& backend) {
        c10d::BarrierOptions options;
        options.timeout = timeout;
        return backend.barrier(options);
      });
    case OperationKind::kSend:
    case OperationKind::kReceive:
      break;
  }
  return InternalError("a message is not a collective");
}

}  // namespace ait::inline v0::internal

// SPDX-License-Identifier: Apache-2.0
#include "ait/comm/communicator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "ait/comm/transport.h"
#include "comm/operation_check.h"

namespace ait::inline v0 {
namespace {

using Counts = std::span<const std::int64_t>;

std::vector<std::int64_t> EqualParts(std::int64_t count, WorldSize size) {
  return std::vector<std::int64_t>(static_cast<std::size_t>(size.value()), count);
}

/// What a collective of one rank does: every kind gives the rank its own input.
void CopyToSelf(const Operation& operation) {
  if (operation.kind == OperationKind::kBarrier || operation.output.count == 0 ||
      operation.output.data == operation.input.data) {
    return;
  }
  std::memcpy(operation.output.data, operation.input.data,
              static_cast<std::size_t>(operation.output.bytes().value()));
}

}  // namespace

Communicator::Communicator(std::unique_ptr<Transport> transport, CommunicatorOptions options)
    : transport_(std::move(transport)), options_(options) {}

Communicator::~Communicator() = default;

Rank Communicator::rank() const { return transport_->rank(); }
WorldSize Communicator::size() const { return transport_->size(); }
std::string_view Communicator::transport_name() const { return transport_->name(); }
const CommunicatorOptions& Communicator::options() const { return options_; }

Work Communicator::Start(Operation operation, Options options) {
  // A refused collective takes its number too: ranks that accept it then see that they are out of
  // step.
  if (!internal::IsMessage(operation.kind)) operation.sequence = ++sequence_;
  operation.label = std::move(options.label);
  const std::chrono::milliseconds timeout =
      options.timeout.count() == 0 ? options_.timeout : options.timeout;
  if (Status status = internal::CheckOperation(operation, rank(), size()); !status.ok()) {
    return Work(std::move(status));
  }
  if (timeout.count() <= 0) {
    return Work(InvalidArgumentError("rank ", rank(), ": ", operation.Describe(), ": a timeout of ",
                                     timeout.count(), " ms is not positive"));
  }
  operation.deadline = Deadline::After(timeout);
  if (size() == WorldSize(1)) {
    std::lock_guard lock(alone_mutex_);
    if (!alone_aborted_.ok()) {
      return Work(AbortedError("rank 0: ", operation.Describe(),
                               ": the group was aborted: ", Message(alone_aborted_)));
    }
    CopyToSelf(operation);
    return Work();
  }
  return transport_->Start(std::move(operation));
}

Work Communicator::Broadcast(Buffer buffer, Rank root, Options options) {
  return Start({.kind = OperationKind::kBroadcast,
                .dtype = buffer.dtype,
                .input = buffer,
                .output = buffer,
                .peer = root},
               std::move(options));
}

Work Communicator::AllReduce(Buffer buffer, ReduceOp op, Options options) {
  return Start({.kind = OperationKind::kAllReduce,
                .reduce = op,
                .dtype = buffer.dtype,
                .input = buffer,
                .output = buffer},
               std::move(options));
}

Work Communicator::ReduceScatter(ConstBuffer input, Buffer output, ReduceOp op, Options options) {
  return ReduceScatter(input, output, EqualParts(output.count, size()), op, std::move(options));
}

Work Communicator::ReduceScatter(ConstBuffer input, Buffer output, Counts counts, ReduceOp op,
                                 Options options) {
  return Start({.kind = OperationKind::kReduceScatter,
                .reduce = op,
                .dtype = output.dtype,
                .input = input,
                .output = output,
                .counts = {counts.begin(), counts.end()}},
               std::move(options));
}

Work Communicator::AllGather(ConstBuffer input, Buffer output, Options options) {
  return AllGather(input, output, EqualParts(input.count, size()), std::move(options));
}

Work Communicator::AllGather(ConstBuffer input, Buffer output, Counts counts, Options options) {
  return Start({.kind = OperationKind::kAllGather,
                .dtype = output.dtype,
                .input = input,
                .output = output,
                .counts = {counts.begin(), counts.end()}},
               std::move(options));
}

Work Communicator::AllToAll(ConstBuffer input, Buffer output, Options options) {
  return AllToAll(input, output, EqualParts(input.count / size().value(), size()),
                  EqualParts(output.count / size().value(), size()), std::move(options));
}

Work Communicator::AllToAll(ConstBuffer input, Buffer output, Counts send_counts,
                            Counts receive_counts, Options options) {
  return Start({.kind = OperationKind::kAllToAll,
                .dtype = output.dtype,
                .input = input,
                .output = output,
                .counts = {send_counts.begin(), send_counts.end()},
                .receive_counts = {receive_counts.begin(), receive_counts.end()}},
               std::move(options));
}

Work Communicator::Gather(ConstBuffer input, Buffer output, Rank root, Options options) {
  return Gather(input, output, EqualParts(input.count, size()), root, std::move(options));
}

Work Communicator::Gather(ConstBuffer input, Buffer output, Counts counts, Rank root,
                          Options options) {
  return Start({.kind = OperationKind::kGather,
                .dtype = input.dtype,
                .input = input,
                .output = root == rank() ? output : Buffer{},
                .counts = {counts.begin(), counts.end()},
                .peer = root},
               std::move(options));
}

Work Communicator::Scatter(ConstBuffer input, Buffer output, Rank root, Options options) {
  return Scatter(input, output, EqualParts(output.count, size()), root, std::move(options));
}

Work Communicator::Scatter(ConstBuffer input, Buffer output, Counts counts, Rank root,
                           Options options) {
  return Start({.kind = OperationKind::kScatter,
                .dtype = output.dtype,
                .input = root == rank() ? input : ConstBuffer{},
                .output = output,
                .counts = {counts.begin(), counts.end()},
                .peer = root},
               std::move(options));
}

Work Communicator::Send(ConstBuffer buffer, Rank destination, std::uint32_t tag, Options options) {
  return Start({.kind = OperationKind::kSend,
                .dtype = buffer.dtype,
                .input = buffer,
                .peer = destination,
                .tag = tag},
               std::move(options));
}

Work Communicator::Receive(Buffer buffer, Rank source, std::uint32_t tag, Options options) {
  return Start({.kind = OperationKind::kReceive,
                .dtype = buffer.dtype,
                .output = buffer,
                .peer = source,
                .tag = tag},
               std::move(options));
}

Work Communicator::Barrier(Options options) { return Start({}, std::move(options)); }

StatusOr<std::shared_ptr<Communicator>> Communicator::Split(int color, int key, Options options) {
  const Deadline deadline =
      Deadline::After(options.timeout.count() == 0 ? options_.timeout : options.timeout);
  const auto ranks = static_cast<std::size_t>(size().value());
  std::array<std::int64_t, 2> own = {color, key};
  std::vector<std::int64_t> all(2 * ranks);
  if (options.label.empty()) options.label = "split";
  AIT_RETURN_IF_ERROR(AllGather(View(own), View(all), std::move(options)).Wait());

  std::vector<Rank> members;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    if (all[2 * rank] == color) members.push_back(Rank(static_cast<int>(rank)));
  }
  std::sort(members.begin(), members.end(), [&](Rank a, Rank b) {
    const auto key_of = [&](Rank rank) {
      return all[2 * static_cast<std::size_t>(rank.value()) + 1];
    };
    return std::pair(key_of(a), a) < std::pair(key_of(b), b);
  });
  const std::uint64_t call = ++splits_;  // on all ranks, also those of no group
  if (color < 0) return nullptr;
  const std::uint64_t id = (call << 32) | static_cast<std::uint64_t>(members.front().value());
  AIT_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport,
                       transport_->Subgroup(members, id, deadline));
  return std::make_shared<Communicator>(std::move(transport), options_);
}

void Communicator::Abort(const Status& reason) {
  {
    std::lock_guard lock(alone_mutex_);
    if (size() == WorldSize(1) && alone_aborted_.ok()) {
      alone_aborted_ = reason.ok() ? AbortedError("no reason was given") : reason;
    }
  }
  transport_->Abort(reason);
}

StatusOr<std::shared_ptr<Communicator>> Communicator::Survivors(Options options) {
  const Deadline deadline =
      Deadline::After(options.timeout.count() == 0 ? options_.timeout : options.timeout);
  AIT_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport, transport_->Survivors(deadline));
  return std::make_shared<Communicator>(std::move(transport), options_);
}

MemoryHandle Communicator::memory() const { return transport_->memory(); }

void Communicator::Note(std::int64_t step, std::string_view phase) {
  transport_->Note(step, phase);
}

StatusOr<std::unique_ptr<Transport>> Transport::Survivors(Deadline) {
  return UnimplementedError("rank ", rank(), ": the transport \"", name(),
                            "\" cannot make a group of the survivors; start the run anew");
}

}  // namespace ait::inline v0

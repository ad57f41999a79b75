// SPDX-License-Identifier: Apache-2.0
#include "ait/comm/communicator.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "ait/comm/flight_recorder.h"
#include "ait/comm/transport.h"
#include "comm/operation_check.h"

namespace ait::inline v0 {
namespace {

using Counts = std::span<const std::int64_t>;

constexpr int kOwnCapacity = 256;

std::vector<std::int64_t> EqualParts(std::int64_t count, WorldSize size) {
  return std::vector<std::int64_t>(static_cast<std::size_t>(size.value()), count);
}

std::vector<Rank> AllRanks(WorldSize size) {
  std::vector<Rank> ranks;
  for (int rank = 0; rank < size.value(); ++rank) ranks.push_back(Rank(rank));
  return ranks;
}

/// `Deadline::After`, from a time that is known already.
Deadline After(Time now, std::chrono::milliseconds timeout) {
  const Duration length = Saturate(timeout);
  return length >= Time::max() - now ? Deadline::Infinite() : Deadline::At(now + length);
}

Operation ReduceScatterOf(ConstBuffer input, Buffer output, std::vector<std::int64_t> counts,
                          ReduceOp op) {
  return {.kind = OperationKind::kReduceScatter,
          .reduce = op,
          .dtype = output.dtype,
          .input = input,
          .output = output,
          .counts = std::move(counts)};
}

Operation AllGatherOf(ConstBuffer input, Buffer output, std::vector<std::int64_t> counts) {
  return {.kind = OperationKind::kAllGather,
          .dtype = output.dtype,
          .input = input,
          .output = output,
          .counts = std::move(counts)};
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
    : Communicator(std::move(transport), std::move(options), nullptr) {}

Communicator::Communicator(std::unique_ptr<Transport> transport, CommunicatorOptions options,
                           std::shared_ptr<FlightGroup> group)
    : transport_(std::move(transport)),
      options_(std::move(options)),
      group_(std::move(group)),
      rank_(transport_->rank()),
      size_(transport_->size()) {
  if (options_.recorder == nullptr) {
    options_.recorder = std::make_shared<FlightRecorder>(
        FlightRecorderOptions{.capacity = kOwnCapacity, .rank = rank_, .size = size_});
  }
  if (group_ == nullptr) group_ = options_.recorder->AddGroup("world", AllRanks(size_));
}

Communicator::~Communicator() = default;

Rank Communicator::rank() const { return rank_; }
WorldSize Communicator::size() const { return size_; }
std::string_view Communicator::transport_name() const { return transport_->name(); }
const CommunicatorOptions& Communicator::options() const { return options_; }
FlightRecorder& Communicator::recorder() const { return *options_.recorder; }

// What this adds to the time of a small operation matters: one look at the clock, no allocation.
Work Communicator::Start(Operation operation, Options options) {
  const Time now = SystemClock().now();
  // A refused collective takes its number too: ranks that accept it then see that they are out of
  // step.
  if (!internal::IsMessage(operation.kind)) operation.sequence = ++sequence_;
  operation.label = std::move(options.label);
  operation.on_reduced = std::move(options.on_reduced);
  const std::chrono::milliseconds timeout =
      options.timeout.count() == 0 ? options_.timeout : options.timeout;
  operation.deadline = After(now, timeout);
  const std::uint64_t number = group_->Begin(operation, now);
  Status refused = internal::CheckOperation(operation, rank_, size_);
  if (refused.ok() && timeout.count() <= 0) {
    refused = InvalidArgumentError("rank ", rank_, ": ", operation.Describe(), ": a timeout of ",
                                   timeout.count(), " ms is not positive");
  }
  Work work = refused.ok() ? Issue(std::move(operation)) : Work(std::move(refused));
  work.RecordIn(group_, number, now);
  return work;
}

Work Communicator::Issue(Operation operation) {
  if (size_ != WorldSize(1) || transport_->carries_alone()) {
    return transport_->Start(std::move(operation));
  }
  std::lock_guard lock(alone_mutex_);
  if (!alone_aborted_.ok()) {
    return Work(AbortedError("rank 0: ", operation.Describe(),
                             ": the group was aborted: ", Message(alone_aborted_)));
  }
  CopyToSelf(operation);
  if (operation.on_reduced && operation.output.count > 0)
    operation.on_reduced(0, operation.output.count);
  return Work();
}

bool Communicator::reports_reduced() const {
  return transport_->reports_reduced() || (size_ == WorldSize(1) && !transport_->carries_alone());
}

StatusOr<std::vector<void*>> Communicator::PeerAddresses(Buffer buffer, Options options) {
  const auto bytes = static_cast<std::size_t>(buffer.bytes().value());
  // Every rank learns the address, or that there is none, and how many bytes the peers mean.
  const std::uint64_t place = size_ == WorldSize(1) ? 0 : transport_->Locate(buffer.data, bytes);
  std::array<std::int64_t, 2> own = {static_cast<std::int64_t>(place),
                                     static_cast<std::int64_t>(bytes)};
  std::vector<std::int64_t> all(2 * static_cast<std::size_t>(size_.value()));
  if (options.label.empty()) options.label = "addresses";
  AIT_RETURN_IF_ERROR(AllGather(View(own), View(all), std::move(options)).Wait());
  std::vector<void*> addresses;
  bool out_of_reach = false;
  for (int peer = 0; peer < size_.value(); ++peer) {
    const auto where = static_cast<std::uint64_t>(all[2 * static_cast<std::size_t>(peer)]);
    const std::int64_t count = all[2 * static_cast<std::size_t>(peer) + 1];
    if (count != all[1]) {
      return InvalidArgumentError("addresses: the buffer of rank ", peer, " has ", count,
                                  " bytes, and that of rank 0 has ", all[1],
                                  "; give the same on all ranks");
    }
    void* address = peer == rank_.value()             ? buffer.data
                    : where == Transport::kOutOfReach ? nullptr
                                                      : transport_->Reach(Rank(peer), where, bytes);
    out_of_reach = out_of_reach || where == Transport::kOutOfReach;
    if (address == nullptr && bytes > 0 && where != Transport::kOutOfReach) {
      return InternalError("addresses: rank ", rank_, " cannot map the buffer of rank ", peer);
    }
    addresses.push_back(address);
  }
  if (out_of_reach) addresses.clear();
  return addresses;
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
  return Start(ReduceScatterOf(input, output, EqualParts(output.count, size_), op),
               std::move(options));
}

Work Communicator::ReduceScatter(ConstBuffer input, Buffer output, Counts counts, ReduceOp op,
                                 Options options) {
  return Start(ReduceScatterOf(input, output, {counts.begin(), counts.end()}, op),
               std::move(options));
}

Work Communicator::AllGather(ConstBuffer input, Buffer output, Options options) {
  return Start(AllGatherOf(input, output, EqualParts(input.count, size_)), std::move(options));
}

Work Communicator::AllGather(ConstBuffer input, Buffer output, Counts counts, Options options) {
  return Start(AllGatherOf(input, output, {counts.begin(), counts.end()}), std::move(options));
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
  if (color < 0) {
    AIT_RETURN_IF_ERROR(transport_->StandAside(call << 32, deadline));
    return nullptr;
  }
  const std::uint64_t id = (call << 32) | static_cast<std::uint64_t>(members.front().value());
  AIT_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport,
                       transport_->Subgroup(members, id, deadline));
  return Child(std::move(transport), StrCat(group_->name(), "/", call, ".", members.front()),
               members);
}

/// The communicator of some ranks of this one, which share its recorder.
std::shared_ptr<Communicator> Communicator::Child(std::unique_ptr<Transport> transport,
                                                  std::string name,
                                                  const std::vector<Rank>& members) const {
  std::vector<Rank> in_world;  // as far as it is known who they are
  if (!group_->members().empty()) {
    for (const Rank member : members)
      in_world.push_back(group_->members()[static_cast<std::size_t>(member.value())]);
  }
  return std::shared_ptr<Communicator>(
      new Communicator(std::move(transport), options_,
                       options_.recorder->AddGroup(std::move(name), std::move(in_world))));
}

void Communicator::Abort(const Status& reason) {
  {
    std::lock_guard lock(alone_mutex_);
    if (size() == WorldSize(1) && alone_aborted_.ok()) {
      alone_aborted_ = reason.ok() ? AbortedError("no reason was given") : reason;
    }
  }
  group_->Fail(reason);
  transport_->Abort(reason);
}

StatusOr<std::shared_ptr<Communicator>> Communicator::Survivors(Options options) {
  const Deadline deadline =
      Deadline::After(options.timeout.count() == 0 ? options_.timeout : options.timeout);
  AIT_ASSIGN_OR_RETURN(std::unique_ptr<Transport> transport, transport_->Survivors(deadline));
  const std::vector<Rank> members = transport->survived();
  return Child(std::move(transport), StrCat(group_->name(), "/survivors ", ++rebuilds_), members);
}

void Communicator::ForgetPeerPages() { transport_->ForgetPeerPages(); }

MemoryHandle Communicator::memory() const { return transport_->memory(); }

void Communicator::Note(std::int64_t step, std::string_view phase) {
  options_.recorder->Note(step, phase);
  transport_->Note(step, phase);
}

StatusOr<std::unique_ptr<Transport>> Transport::Survivors(Deadline) {
  return UnimplementedError("rank ", rank(), ": the transport \"", name(),
                            "\" cannot make a group of the survivors; start the run anew");
}

}  // namespace ait::inline v0

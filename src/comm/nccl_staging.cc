// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl_staging.h"

#include <cstring>
#include <utility>
#include <vector>

#include "comm/reduce.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::size_t kAlignment = 256;
// For signatures of a group and its children, beside what operations take.
constexpr Bytes kBooks = MiB(2);

std::int64_t Aligned(std::int64_t bytes) {
  return RoundUp(bytes, static_cast<std::int64_t>(kAlignment));
}

bool Reduces(const Operation& operation) {
  return operation.kind == OperationKind::kAllReduce ||
         operation.kind == OperationKind::kReduceScatter;
}

}  // namespace

NcclArena::NcclArena(DeviceBuffer on_device, DeviceBuffer on_host, Bytes host_staging)
    : on_device_(std::move(on_device)),
      on_host_(std::move(on_host)),
      host_staging_(host_staging),
      regions_(static_cast<std::size_t>(on_device_.size().value())) {}

StatusOr<std::shared_ptr<NcclArena>> NcclArena::Create(
    const std::shared_ptr<DeviceRuntime>& devices, Device device, Bytes host_staging) {
  const Bytes bytes(Aligned(host_staging.value()) + kBooks.value());
  AIT_ASSIGN_OR_RETURN(DeviceBuffer on_device, DeviceBuffer::Create(devices, device, bytes));
  AIT_ASSIGN_OR_RETURN(DeviceBuffer on_host,
                       DeviceBuffer::Create(devices, device, bytes, MemoryPlace::kPinned));
  return std::shared_ptr<NcclArena>(
      new NcclArena(std::move(on_device), std::move(on_host), host_staging));
}

std::optional<NcclArena::Piece> NcclArena::Take(std::int64_t bytes) {
  Piece piece;
  if (bytes == 0) return piece;
  std::lock_guard lock(mutex_);
  piece.bytes_ = static_cast<std::size_t>(Aligned(bytes));
  const std::optional<std::size_t> offset = regions_.Allocate(piece.bytes_, kAlignment);
  if (!offset) {
    piece.bytes_ = 0;
    return std::nullopt;
  }
  piece.offset_ = *offset;
  piece.on_device_ = static_cast<std::byte*>(on_device_.data()) + *offset;
  piece.on_host_ = static_cast<std::byte*>(on_host_.data()) + *offset;
  piece.arena_ = shared_from_this();
  return piece;
}

NcclArena::Piece& NcclArena::Piece::operator=(Piece&& other) noexcept {
  std::swap(arena_, other.arena_);
  std::swap(on_device_, other.on_device_);
  std::swap(on_host_, other.on_host_);
  std::swap(offset_, other.offset_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

NcclArena::Piece::~Piece() {
  if (bytes_ == 0) return;
  std::lock_guard lock(arena_->mutex_);
  arena_->regions_.Free(offset_, bytes_);
}

NcclStaged::Layout NcclStaged::LayoutOf(const Operation& operation, int rank, int size) {
  Layout layout{.input = operation.input.bytes().value(),
                .output = operation.output.bytes().value()};
  if (Reduces(operation)) layout.output *= size;  // what all ranks give to the part of this one
  if (operation.kind == OperationKind::kBroadcast && rank != operation.peer.value()) {
    layout.input = 0;
  }
  return layout;
}

std::int64_t NcclStaged::Needs(const Operation& operation, int rank, int size) {
  const Layout layout = LayoutOf(operation, rank, size);
  return Aligned(layout.input) + layout.output;
}

NcclStaged::NcclStaged(NcclArena::Piece piece, const Operation& operation, int rank, int size)
    : operation_(operation),
      rank_(rank),
      size_(size),
      layout_(LayoutOf(operation, rank, size)),
      output_at_(Aligned(layout_.input)),
      piece_(std::move(piece)) {}

Status NcclStaged::Enqueue(const NcclComm& comm, Stream& stream, const KeepGoing& keep_going) {
  void* input = piece_.on_device();
  void* output = piece_.on_device(output_at_);
  if (layout_.input > 0) {
    std::memcpy(piece_.on_host(), operation_.input.data, static_cast<std::size_t>(layout_.input));
    AIT_RETURN_IF_ERROR(stream.Copy(input, piece_.on_host(), Bytes(layout_.input)));
  }
  if (operation_.kind == OperationKind::kAllReduce) {
    AIT_RETURN_IF_ERROR(
        EnqueueAllGather(comm, stream.native(), input, output, layout_.input, keep_going));
  } else if (operation_.kind == OperationKind::kReduceScatter) {
    std::vector<std::int64_t> sent;
    for (const std::int64_t count : operation_.counts) {
      sent.push_back(count * SizeOf(operation_.dtype));
    }
    const std::vector<std::int64_t> received(static_cast<std::size_t>(size_),
                                             operation_.output.bytes().value());
    AIT_RETURN_IF_ERROR(
        EnqueueExchange(comm, stream.native(), input, sent, output, received, keep_going));
  } else {
    AIT_RETURN_IF_ERROR(EnqueueCollective(comm, stream.native(), operation_, input, output, rank_,
                                          size_, keep_going));
  }
  return stream.Copy(piece_.on_host(output_at_), output, Bytes(layout_.output));
}

void NcclStaged::Finish() {
  const Buffer& output = operation_.output;
  if (output.count == 0) return;
  if (!Reduces(operation_)) {
    std::memcpy(output.data, piece_.on_host(output_at_),
                static_cast<std::size_t>(output.bytes().value()));
    return;
  }
  std::vector<const void*> inputs;
  for (int rank = 0; rank < size_; ++rank) {
    inputs.push_back(piece_.on_host(output_at_ + rank * output.bytes().value()));
  }
  void* const result = output.data;
  ReduceRanks(inputs, std::span(&result, 1), output.count, operation_.dtype, operation_.reduce);
}

}  // namespace ait::inline v0::internal

// SPDX-License-Identifier: Apache-2.0
#include "comm/nccl_pipe.h"

#include <chrono>
#include <cstddef>
#include <cstring>
#include <utility>

namespace ait::inline v0::internal {
namespace {

// How long the value of the meeting, which is known to be set, may take to arrive.
constexpr std::chrono::milliseconds kPatience{1000};

}  // namespace

NcclPipe::NcclPipe(const NcclShared& shared, NcclBoard& board, int peer, bool sends)
    : shared_(shared), board_(board), peer_(peer), sends_(sends) {}

std::string NcclPipe::Key(std::string_view what) const {
  const int self = board_.options().rank;
  return StrCat(board_.Key(what), "/", sends_ ? self : peer_, "-", sends_ ? peer_ : self);
}

Status NcclPipe::Publish() {
  if (id_) return OkStatus();
  ncclUniqueId id;
  AIT_RETURN_IF_ERROR(shared_.place.library->Check(shared_.place.library->ncclGetUniqueId(&id),
                                                   nullptr, "ncclGetUniqueId"));
  AIT_RETURN_IF_ERROR(
      board_.store().Set(Key("pipe"), std::string_view(id.internal, sizeof(id.internal))));
  id_ = id;
  return OkStatus();
}

Status NcclPipe::Connect() {
  if (!id_) {
    AIT_ASSIGN_OR_RETURN(const std::string value,
                         board_.store().Get(Key("pipe"), Deadline::After(kPatience)));
    ncclUniqueId id;
    if (value.size() != sizeof(id.internal)) {
      return InternalError("the store has ", value.size(), " bytes under ", Key("pipe"));
    }
    std::memcpy(id.internal, value.data(), value.size());
    id_ = id;
  }
  const auto& [library, devices, device] = shared_.place;
  AIT_ASSIGN_OR_RETURN(Stream stream, Stream::Create(devices, device));
  AIT_ASSIGN_OR_RETURN(Event done, Event::Create(devices, device));
  resources_.reset(new Resources{std::move(stream), std::move(done), {}});
  AIT_ASSIGN_OR_RETURN(comm_, NcclComm::Begin(shared_.place, *id_, sends_ ? 0 : 1, 2));
  return OkStatus();
}

Status NcclPipe::Begin(std::shared_ptr<NcclMessage> message) {
  message_ = std::move(message);
  if (message_->bytes() == 0) return OkStatus();  // it moves without NCCL
  phase_ = comm_ == nullptr ? Phase::kConnecting : Phase::kRoom;
  return comm_ == nullptr ? Connect() : OkStatus();
}

Status NcclPipe::Launch() {
  const NcclMessage& message = *message_;
  const std::int64_t bytes = message.bytes();
  const bool staged = !resources_->piece.is_empty();
  Stream& stream = resources_->stream;
  if (message.placed.produced) AIT_RETURN_IF_ERROR(stream.WaitFor(*message.placed.produced));
  const auto native = static_cast<cudaStream_t>(stream.native());
  const auto count = static_cast<std::size_t>(bytes);
  const NcclLibrary& nccl = comm_->library();
  ncclResult_t result = ncclSuccess;
  if (sends_) {
    const void* from = message.operation.input.data;
    if (staged) {
      std::memcpy(resources_->piece.on_host(), from, count);
      from = resources_->piece.on_device();
      AIT_RETURN_IF_ERROR(
          stream.Copy(resources_->piece.on_device(), resources_->piece.on_host(), Bytes(bytes)));
    }
    result = nccl.ncclSend(from, count, ncclInt8, 1, comm_->get(), native);
  } else {
    void* to = staged ? resources_->piece.on_device() : message.operation.output.data;
    result = nccl.ncclRecv(to, count, ncclInt8, 0, comm_->get(), native);
  }
  return nccl.Check(result, comm_->get(), sends_ ? "ncclSend" : "ncclRecv");
}

StatusOr<bool> NcclPipe::Step() {
  switch (phase_) {
    case Phase::kIdle:
      return true;
    case Phase::kConnecting: {
      AIT_ASSIGN_OR_RETURN(const bool ready, comm_->Ready("ncclCommInitRankConfig"));
      if (!ready) return false;
      phase_ = Phase::kRoom;
      [[fallthrough]];
    }
    case Phase::kRoom: {
      // A receive that was given up may not write where it was to.
      const bool direct =
          message_->placed.where == NcclPlaced::Where::kDevice && !message_->state->done();
      if (!direct) {
        if (message_->bytes() > shared_.arena->host_staging().value()) {
          return DeadlineExceededError("a message of ", message_->bytes(),
                                       " bytes was given up when the peer had begun to send it");
        }
        std::optional<NcclArena::Piece> piece = shared_.arena->Take(message_->bytes());
        if (!piece) return false;
        resources_->piece = *std::move(piece);
      }
      AIT_RETURN_IF_ERROR(Launch());
      phase_ = Phase::kLaunching;
      [[fallthrough]];
    }
    case Phase::kLaunching: {
      AIT_ASSIGN_OR_RETURN(const bool ready, comm_->Ready(sends_ ? "ncclSend" : "ncclRecv"));
      if (!ready) return false;
      if (!sends_ && !resources_->piece.is_empty()) {
        AIT_RETURN_IF_ERROR(resources_->stream.Copy(
            resources_->piece.on_host(), resources_->piece.on_device(), Bytes(message_->bytes())));
      }
      AIT_RETURN_IF_ERROR(resources_->done.Record(resources_->stream));
      phase_ = Phase::kMoving;
      [[fallthrough]];
    }
    case Phase::kMoving: {
      AIT_RETURN_IF_ERROR(comm_->Ready(sends_ ? "ncclSend" : "ncclRecv").status());
      AIT_ASSIGN_OR_RETURN(const bool done, resources_->done.Done());
      if (!done) return false;
    }
  }
  if (!resources_->piece.is_empty()) {
    if (!sends_ && !message_->state->done()) {
      std::memcpy(message_->operation.output.data, resources_->piece.on_host(),
                  static_cast<std::size_t>(message_->bytes()));
    }
    resources_->piece = NcclArena::Piece();
  }
  phase_ = Phase::kIdle;
  return true;
}

void NcclPipe::End() {
  if (comm_ == nullptr) return;
  const auto release = [resources = resources_] { resources->stream.Wait().IgnoreError(); };
  if (phase_ == Phase::kIdle) {
    comm_->Close(release);
  } else {
    comm_->Abort(release);
  }
}

bool NcclPipe::AwaitEnd(Deadline deadline) const {
  return comm_ == nullptr || comm_->AwaitEnd(deadline);
}

}  // namespace ait::inline v0::internal

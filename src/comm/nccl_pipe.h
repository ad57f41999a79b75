// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_NCCL_PIPE_H_
#define AIT_COMM_NCCL_PIPE_H_

// The way of messages from one rank to another: a communicator of two and a stream, so that
// messages wait neither for collectives nor for those of the other direction.

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "ait/base/status.h"
#include "ait/comm/operation.h"
#include "comm/nccl_board.h"
#include "comm/nccl_comm.h"
#include "comm/nccl_shared.h"
#include "comm/work_internal.h"

namespace ait::inline v0::internal {

struct NcclMessage {
  Operation operation;
  NcclPlaced placed;
  std::shared_ptr<WorkState> state;
  std::uint64_t number = 0;  // of a send: its place among those of the pair
  std::atomic<bool> cancelled{false};

  std::int64_t bytes() const {
    return operation.kind == OperationKind::kSend ? operation.input.bytes().value()
                                                  : operation.output.bytes().value();
  }
};

/// Moves one message at a time. **Thread-safety.** One thread, but for `AwaitEnd`.
class NcclPipe {
 public:
  NcclPipe(const NcclShared& shared, NcclBoard& board, int peer, bool sends);

  /// The sender's part of the meeting: publishes how to connect. Before the peer may `Begin`.
  Status Publish();

  /// Begins to move a message that both ranks have agreed on. It is not the pipe's if its `state`
  /// has ended: then its bytes go nowhere.
  Status Begin(std::shared_ptr<NcclMessage> message);
  /// Goes on; true once the message has moved. Does not wait.
  StatusOr<bool> Step();

  /// Stops NCCL; what is under way is lost.
  void End();
  bool AwaitEnd(Deadline deadline) const;

 private:
  enum class Phase { kIdle, kConnecting, kRoom, kLaunching, kMoving };
  struct Resources {
    Stream stream;
    Event done;
    NcclArena::Piece piece;
  };
  Status Connect();
  Status Launch();
  std::string Key(std::string_view what) const;

  const NcclShared& shared_;
  NcclBoard& board_;
  const int peer_;
  const bool sends_;
  std::optional<ncclUniqueId> id_;
  std::unique_ptr<NcclComm> comm_;
  std::shared_ptr<Resources> resources_;  // NCCL may use them until its communicator has ended
  std::shared_ptr<NcclMessage> message_;
  Phase phase_ = Phase::kIdle;
};

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_NCCL_PIPE_H_

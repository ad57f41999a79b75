// SPDX-License-Identifier: Apache-2.0
#include "tensor/c10d_link.h"

#include <ATen/ops/from_blob.h>

#include <chrono>
#include <condition_variable>
#include <string>
#include <thread>
#include <utility>

#include "comm/own_thread.h"
#include "tensor/catch.h"

namespace ait::inline v0::internal {
namespace {

using std::chrono::milliseconds;
using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// Longer than any run: the backend gets no time-out to act on.
constexpr milliseconds kForever = std::chrono::hours(24 * 365);
// How long an operation that is interrupted may still use its memory.
constexpr milliseconds kGrace{1000};
// How often one that is under way is asked whether it is interrupted.
constexpr milliseconds kLook{10};

// How c10d's base class, and the backends of libtorch, say that they lack something.
bool SaysUnsupported(const Status& status) {
  const std::string text = Message(status);
  for (const char* word : {"does not support", "not supported", "Unsupported", "not implement",
                           "Invalid scalar type"}) {
    if (text.find(word) != std::string::npos) return true;
  }
  return status.code() == StatusCode::kUnimplemented;
}

// Told when a Work ends.
struct Ending {
  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false;
  Status status;

  void Tell(const Status& how) {
    std::lock_guard lock(mutex);
    ended = true;
    status = how;
    changed.notify_all();
  }
};

}  // namespace

class C10dLink::C10dPiece final : public PairLink::Piece {
 public:
  C10dPiece(WorkPtr posted, int peer) : Piece(peer), work(std::move(posted)) {}
  WorkPtr work;
};

C10dLink::~C10dLink() {
  // Closing may throw; what is lost then is nobody's concern any more.
  CatchAsStatus([&] { backend_.reset(); }).IgnoreError();
}

StatusOr<PairLink::PiecePtr> C10dLink::Post(
    const void* data, std::int64_t bytes, int peer,
    const std::function<WorkPtr(std::vector<at::Tensor>&)>& post) {
  WorkPtr work;
  const Status status = CatchAsStatus([&] {
    std::vector<at::Tensor> tensors{
        at::from_blob(const_cast<void*>(data), {bytes}, at::TensorOptions(at::kByte))};
    std::lock_guard lock(post_mutex_);
    work = post(tensors);
  });
  if (!status.ok()) return UnavailableError("to rank ", peer, ": ", Message(status));
  const std::shared_ptr<C10dPiece> piece(new C10dPiece(std::move(work), peer),
                                         [this](C10dPiece* gone) {
                                           {
                                             std::lock_guard lock(mutex_);
                                             pieces_.erase(gone);
                                           }
                                           delete gone;
                                         });
  std::lock_guard lock(mutex_);
  pieces_.insert(piece.get());
  if (interrupted_) CatchAsStatus([&] { piece->work->abort(); }).IgnoreError();
  return piece;
}

StatusOr<PairLink::PiecePtr> C10dLink::Send(const void* data, std::int64_t bytes, int peer,
                                            std::uint32_t tag) {
  return Post(data, bytes, peer,
              [&](auto& tensors) { return backend_->send(tensors, peer, static_cast<int>(tag)); });
}

StatusOr<PairLink::PiecePtr> C10dLink::Receive(void* data, std::int64_t bytes, int peer,
                                               std::uint32_t tag) {
  return Post(data, bytes, peer,
              [&](auto& tensors) { return backend_->recv(tensors, peer, static_cast<int>(tag)); });
}

// Works of messages often tell that they are done only to who waits, and can be aborted.
Status C10dLink::Await(Piece& piece) {
  bool done = false;
  const Status status =
      CatchAsStatus([&] { done = static_cast<C10dPiece&>(piece).work->wait(kForever); });
  std::lock_guard lock(mutex_);
  if (status.ok() && done) return OkStatus();
  if (interrupted_ || status.ok()) return CancelledError("interrupted");
  return UnavailableError(Message(status));
}

void C10dLink::Interrupt(Piece& piece) {
  CatchAsStatus([&] { static_cast<C10dPiece&>(piece).work->abort(); }).IgnoreError();
}

void C10dLink::Interrupt() {
  std::lock_guard lock(mutex_);
  interrupted_ = true;
  for (C10dPiece* piece : pieces_) {
    CatchAsStatus([&] { piece->work->abort(); }).IgnoreError();
  }
}

Status C10dLink::Run(const std::function<WorkPtr(c10d::Backend&)>& start) {
  WorkPtr work;
  const Status started = CatchAsStatus([&] {
    std::lock_guard lock(post_mutex_);
    work = start(*backend_);
  });
  if (!started.ok()) {
    return SaysUnsupported(started) ? UnimplementedError(Message(started))
                                    : UnavailableError(Message(started));
  }
  return work == nullptr ? OkStatus() : AwaitWork(work);
}

// Works of collectives tell by a Future that they are done, or only to who waits; few can be
// aborted.
Status C10dLink::AwaitWork(const WorkPtr& work) {
  const auto ending = std::make_shared<Ending>();
  const auto wait = [work] { return CatchAsStatus([&] { work->wait(); }); };
  const bool has_future = CatchAsStatus([&] {
                            work->getFuture()->addCallback(
                                [ending](c10::ivalue::Future&) { ending->Tell(OkStatus()); });
                          }).ok();
  if (!has_future) {
    // It owns what it needs, and ends when the backend ends the operation.
    AIT_ASSIGN_OR_RETURN(
        std::thread waiter,
        StartOwnThread("an operation of a c10d backend", [ending, wait] { ending->Tell(wait()); }));
    waiter.detach();
  }
  Deadline grace = Deadline::Infinite();
  std::unique_lock lock(ending->mutex);
  while (!ending->changed.wait_for(lock, kLook, [&] { return ending->ended; })) {
    if (grace.is_infinite() && interrupted()) grace = Deadline::After(kGrace);
    if (grace.expired()) return CancelledError("interrupted");
  }
  const Status status = has_future ? wait() : ending->status;
  if (status.ok()) return status;
  return interrupted() ? CancelledError("interrupted") : UnavailableError(Message(status));
}

bool C10dLink::interrupted() {
  std::lock_guard lock(mutex_);
  return interrupted_;
}

}  // namespace ait::inline v0::internal

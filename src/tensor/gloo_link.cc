// SPDX-License-Identifier: Apache-2.0
#include "tensor/gloo_link.h"

#include "tensor/torch_internal.h"
// Keep the order.
#include <ATen/ops/from_blob.h>

#include <signal.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <set>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>

#include "tensor/catch.h"
#include "tensor/gloo_store.h"

namespace ait::inline v0::internal {
namespace {

using std::chrono::milliseconds;

// Longer than any run: Gloo gets no time-out to act on.
constexpr milliseconds kForever = std::chrono::hours(24 * 365);

// Gloo writes to sockets without asking for an error instead of SIGPIPE, which would end a program
// whose peer has died. The signal goes to the thread that writes: it is blocked there meanwhile,
// and taken back if it came. Threads made under the guard keep it blocked.
class SigpipeGuard {
 public:
  SigpipeGuard() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    sigset_t pending;
    sigpending(&pending);
    was_pending_ = sigismember(&pending, SIGPIPE) == 1;
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~SigpipeGuard() {
    if (!was_pending_) {
      const timespec now{};
      while (sigtimedwait(&pipe_, nullptr, &now) == -1 && errno == EINTR) {
      }
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SigpipeGuard(const SigpipeGuard&) = delete;
  SigpipeGuard& operator=(const SigpipeGuard&) = delete;

 private:
  sigset_t pipe_, before_;
  bool was_pending_ = false;
};

// Gloo's texts begin with "[/path/to/file.cc:123] ".
Status WithoutSource(const Status& status) {
  std::string text = Message(status);
  if (const auto end = text.find("] "); text.substr(0, 1) == "[" && end != std::string::npos) {
    text.erase(0, end + 2);
  }
  return UnavailableError(text);
}

// A thread that sends writes to the socket itself and holds the lock of the connection meanwhile;
// Gloo's own thread, which has bytes to read from it, then asks the kernel again and again. On a
// connection that carries data in one direction only there is nothing to read.
int Directed(std::uint32_t tag, int from, int to) {
  return static_cast<int>(tag << 1) | (from < to ? 0 : 1);
}

class Device final : public GlooDevice {
 public:
  std::shared_ptr<gloo::transport::Device> gloo;
};

class GlooPiece final : public PairLink::Piece {
 public:
  GlooPiece(c10::intrusive_ptr<c10d::Work> posted, int peer)
      : Piece(peer), work(std::move(posted)) {}
  c10::intrusive_ptr<c10d::Work> work;
};

class GlooLink final : public PairLink {
 public:
  explicit GlooLink(GlooLinkOptions options) : options_(std::move(options)) {}
  ~GlooLink() override;
  Status Connect(Deadline deadline);
  StatusOr<PiecePtr> Send(const void* data, std::int64_t bytes, int peer,
                          std::uint32_t tag) override;
  StatusOr<PiecePtr> Receive(void* data, std::int64_t bytes, int peer, std::uint32_t tag) override;
  Status Await(Piece& piece) override;
  void Interrupt(Piece& piece) override;
  void Interrupt() override;

 private:
  PiecePtr Register(std::unique_ptr<GlooPiece> piece);

  /// A rank that is connected may be done and gone before the others are: all wait for all.
  Status AwaitOthers(Deadline deadline) {
    const std::string key = StrCat("gloo/", options_.name, "/connected");
    AIT_ASSIGN_OR_RETURN(const std::int64_t connected, options_.store->Add(key, 1));
    if (connected == static_cast<std::int64_t>(options_.members.size())) {
      return options_.store->Set(key + "/all", "");
    }
    return AwaitKey(*options_.store, key + "/all", options_.members, deadline).status();
  }

  template <typename Post>
  StatusOr<std::unique_ptr<GlooPiece>> Posted(const void* data, std::int64_t bytes, int peer,
                                              Post&& post) {
    const SigpipeGuard guard;
    c10::intrusive_ptr<c10d::Work> work;
    const Status status = CatchAsStatus([&] {
      std::vector<at::Tensor> tensors{
          at::from_blob(const_cast<void*>(data), {bytes}, at::TensorOptions(at::kByte))};
      std::lock_guard lock(post_mutex_);
      work = post(tensors);
    });
    if (!status.ok()) return Annotate(WithoutSource(status), StrCat("to rank ", peer));
    return std::make_unique<GlooPiece>(std::move(work), peer);
  }

  const GlooLinkOptions options_;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> group_;
  std::mutex post_mutex_;  // ProcessGroupGloo counts what is posted without one
  std::mutex mutex_;
  bool interrupted_ = false;
  std::set<GlooPiece*> pieces_;  // that are posted
};

GlooLink::~GlooLink() {
  // Closing connections may throw; what is lost then is nobody's concern any more.
  CatchAsStatus([&] { group_.reset(); }).IgnoreError();
}

Status GlooLink::Connect(Deadline deadline) {
  const auto left = std::clamp(std::chrono::ceil<milliseconds>(deadline.remaining()),
                               milliseconds(1), std::chrono::duration_cast<milliseconds>(kForever));
  const SigpipeGuard guard;
  const Status connected = CatchAsStatus([&] {
    auto gloo_options = c10d::ProcessGroupGloo::Options::create(left);
    // One connection a direction; the parity of a tag chooses between them.
    gloo_options->devices.assign(2, std::static_pointer_cast<Device>(options_.device)->gloo);
    gloo_options->threads = 1;  // for collectives of its own, which we do not use
    group_ = c10::make_intrusive<c10d::ProcessGroupGloo>(
        MakeC10dStore(options_.store, StrCat("gloo/", options_.name, "/"), options_.members,
                      deadline),
        options_.rank.value(), static_cast<int>(options_.members.size()), std::move(gloo_options));
  });
  if (!connected.ok()) {
    return Annotate(
        connected.code() == StatusCode::kUnknown ? WithoutSource(connected) : connected,
        StrCat("rank ", options_.rank, " cannot connect the group \"", options_.name, "\""));
  }
  return AwaitOthers(deadline);
}

PairLink::PiecePtr GlooLink::Register(std::unique_ptr<GlooPiece> piece) {
  const std::shared_ptr<GlooPiece> shared(piece.release(), [this](GlooPiece* gone) {
    {
      std::lock_guard lock(mutex_);
      pieces_.erase(gone);
    }
    delete gone;
  });
  std::lock_guard lock(mutex_);
  pieces_.insert(shared.get());
  if (interrupted_) shared->work->abort();
  return shared;
}

StatusOr<PairLink::PiecePtr> GlooLink::Send(const void* data, std::int64_t bytes, int peer,
                                            std::uint32_t tag) {
  AIT_ASSIGN_OR_RETURN(auto piece, Posted(data, bytes, peer, [&](auto& tensors) {
                         return group_->send(tensors, peer,
                                             Directed(tag, options_.rank.value(), peer));
                       }));
  return Register(std::move(piece));
}

StatusOr<PairLink::PiecePtr> GlooLink::Receive(void* data, std::int64_t bytes, int peer,
                                               std::uint32_t tag) {
  AIT_ASSIGN_OR_RETURN(auto piece, Posted(data, bytes, peer, [&](auto& tensors) {
                         return group_->recv(tensors, peer,
                                             Directed(tag, peer, options_.rank.value()));
                       }));
  return Register(std::move(piece));
}

Status GlooLink::Await(Piece& piece) {
  bool done = false;
  const Status status =
      CatchAsStatus([&] { done = static_cast<GlooPiece&>(piece).work->wait(kForever); });
  if (!status.ok()) return WithoutSource(status);
  if (!done) return CancelledError("interrupted");
  return OkStatus();
}

void GlooLink::Interrupt(Piece& piece) {
  std::lock_guard lock(mutex_);
  static_cast<GlooPiece&>(piece).work->abort();
}

void GlooLink::Interrupt() {
  std::lock_guard lock(mutex_);
  interrupted_ = true;
  for (GlooPiece* piece : pieces_) piece->work->abort();
}

}  // namespace

StatusOr<std::shared_ptr<GlooDevice>> GlooDevice::Create(const std::string& interface_name,
                                                         const std::string& address) {
  const SigpipeGuard guard;
  auto device = std::make_shared<Device>();
  const Status made = CatchAsStatus([&] {
    device->gloo =
        interface_name.empty()
            ? c10d::ProcessGroupGloo::createDeviceForHostname(address, /*lazyInit=*/false)
            : c10d::ProcessGroupGloo::createDeviceForInterface(interface_name, /*lazyInit=*/false);
  });
  if (made.ok()) return device;
  return FailedPreconditionError(
      "gloo cannot listen at ",
      interface_name.empty() ? StrCat("the address ", address)
                             : StrCat("the interface ", interface_name, " (GLOO_SOCKET_IFNAME)"),
      " of this host: ", Message(WithoutSource(made)));
}

StatusOr<std::unique_ptr<PairLink>> ConnectGloo(const GlooLinkOptions& options, Deadline deadline) {
  auto link = std::make_unique<GlooLink>(options);
  AIT_RETURN_IF_ERROR(link->Connect(deadline));
  return link;
}

}  // namespace ait::inline v0::internal

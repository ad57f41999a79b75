// SPDX-License-Identifier: Apache-2.0
// File input and output by io_uring. Where ait is built without liburing, opening it is an error.
#include <algorithm>
#include <cerrno>
#include <optional>
#include <utility>

#include "base/io_ring.h"
#include "optim/file_io.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::int64_t kMostAtOnce = std::int64_t{1} << 30;  // the rest follows

class Uring final : public FileIo {
 public:
  Uring(int fd, std::unique_ptr<IoRing> ring) : fd_(fd), ring_(std::move(ring)) {}

  ~Uring() override {
    while (under_way_ > 0 && WaitForAny().ok()) {
    }
  }

  Status Start(FileRequest& request) override {
    request.moved = request.repeats = request.error = 0;
    request.done = false;
    ++under_way_;
    return Submit(request);
  }

  Status Poll() override {
    while (true) {
      AIT_ASSIGN_OR_RETURN(const std::optional<IoRing::Done> done, ring_->Poll());
      if (!done) return OkStatus();
      AIT_RETURN_IF_ERROR(Take(*done));
    }
  }

  Status WaitForAny() override {
    const int before = under_way_;
    while (under_way_ > 0 && under_way_ == before) {
      AIT_ASSIGN_OR_RETURN(const IoRing::Done done, ring_->Wait());
      AIT_RETURN_IF_ERROR(Take(done));
      AIT_RETURN_IF_ERROR(Poll());
    }
    return OkStatus();
  }

  std::string_view name() const override { return "io_uring"; }

 private:
  Status Take(const IoRing::Done& done) {
    auto* request = static_cast<FileRequest*>(done.tag);
    if (Advance(*request, done.result)) return Submit(*request);
    request->done = true;
    --under_way_;
    return OkStatus();
  }

  // The rest of a request. One that cannot be submitted is done, with an error.
  Status Submit(FileRequest& request) {
    const bool reads = request.kind == FileRequest::Kind::kRead;
    Status submitted = ring_->Start(
        {.kind = reads ? IoRing::Kind::kRead : IoRing::Kind::kWrite,
         .fd = fd_,
         .data = request.data + request.moved,
         .bytes = static_cast<std::uint32_t>(std::min(request.bytes - request.moved, kMostAtOnce)),
         .offset = static_cast<std::uint64_t>(request.offset + request.moved),
         .tag = &request});
    if (submitted.ok()) return submitted;
    request.error = EIO;
    request.done = true;
    --under_way_;
    return submitted;
  }

  const int fd_;
  const std::unique_ptr<IoRing> ring_;
  int under_way_ = 0;
};

}  // namespace

StatusOr<std::unique_ptr<FileIo>> OpenUring(int fd, int depth) {
  // Updates come from several threads.
  AIT_ASSIGN_OR_RETURN(std::unique_ptr<IoRing> ring, IoRing::Open(depth, IoRing::Threads::kMany));
  return std::make_unique<Uring>(fd, std::move(ring));
}

}  // namespace ait::inline v0::internal

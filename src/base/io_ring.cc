// SPDX-License-Identifier: Apache-2.0
#include "base/io_ring.h"

#include <liburing.h>
#include <sched.h>

#include <cerrno>

namespace ait::inline v0::internal {
namespace {

class Uring final : public IoRing {
 public:
  ~Uring() override {
    if (open_) io_uring_queue_exit(&ring_);
  }

  Status Setup(int depth, Threads threads) {
    const auto entries = static_cast<unsigned>(depth);
    int result = -EINVAL;
    if (threads == Threads::kOne) {
      result = io_uring_queue_init(entries, &ring_,
                                   IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN);
    }
    // Kernels before 6.1 do not know them.
    if (result == -EINVAL) result = io_uring_queue_init(entries, &ring_, 0);
    if (result != 0) return ErrnoError(-result, "io_uring_setup");
    open_ = true;
    return OkStatus();
  }

  Status Start(const Request& request) override {
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
    if (entry == nullptr) return InternalError("io_uring: more requests than its depth");
    if (request.kind == Kind::kRead) {
      io_uring_prep_read(entry, request.fd, request.data, request.bytes, request.offset);
    } else {
      io_uring_prep_write(entry, request.fd, request.data, request.bytes, request.offset);
    }
    io_uring_sqe_set_data(entry, request.tag);
    int result = 0;
    for (int tries = 0; tries < kMostTries; ++tries) {
      result = io_uring_submit(&ring_);
      if (result > 0) return OkStatus();
      if (result != 0 && result != -EINTR && result != -EAGAIN) break;
      ::sched_yield();
    }
    // The entry stays in the ring and goes with the next submission: it must not touch the memory
    // of a request that the caller was told has not begun.
    io_uring_prep_nop(entry);
    io_uring_sqe_set_data(entry, this);
    return ErrnoError(result < 0 ? -result : EAGAIN, "io_uring: submitting a request");
  }

  StatusOr<std::optional<Done>> Poll() override {
    while (true) {
      io_uring_cqe* entry = nullptr;
      if (io_uring_peek_cqe(&ring_, &entry) != 0) return std::optional<Done>();
      const Done done = Take(entry);
      if (done.tag != this) return std::optional<Done>(done);
    }
  }

  StatusOr<Done> Wait() override {
    while (true) {
      io_uring_cqe* entry = nullptr;
      const int result = io_uring_wait_cqe(&ring_, &entry);
      if (result == -EINTR || result == -EAGAIN) continue;
      if (result != 0) return ErrnoError(-result, "io_uring: waiting for requests");
      const Done done = Take(entry);
      if (done.tag != this) return done;
    }
  }

 private:
  static constexpr int kMostTries = 1000;  // of a submission that the kernel has no memory for

  Done Take(io_uring_cqe* entry) {
    const Done done = {io_uring_cqe_get_data(entry), entry->res};
    io_uring_cqe_seen(&ring_, entry);
    return done;
  }

  io_uring ring_ = {};
  bool open_ = false;
};

}  // namespace

StatusOr<std::unique_ptr<IoRing>> IoRing::Open(int depth, Threads threads) {
  auto ring = std::make_unique<Uring>();
  AIT_RETURN_IF_ERROR(ring->Setup(depth, threads));
  return std::unique_ptr<IoRing>(std::move(ring));
}

}  // namespace ait::inline v0::internal

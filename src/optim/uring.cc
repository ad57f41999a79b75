// SPDX-License-Identifier: Apache-2.0
#include <liburing.h>

#include <cerrno>

#include "optim/file_io.h"

namespace ait::inline v0::internal {
namespace {

class Uring final : public FileIo {
 public:
  explicit Uring(int fd) : fd_(fd) {}

  ~Uring() override {
    if (!open_) return;
    while (under_way_ > 0 && WaitForAny().ok()) {
    }
    io_uring_queue_exit(&ring_);
  }

  Status Open(int depth) {
    // Without the flags that bind a ring to one thread: updates come from several.
    const int result = io_uring_queue_init(static_cast<unsigned>(depth), &ring_, 0);
    if (result != 0) return ErrnoError(-result, "io_uring_setup");
    open_ = true;
    return OkStatus();
  }

  Status Start(FileRequest& request) override {
    request.moved = request.repeats = request.error = 0;
    request.done = false;
    ++under_way_;
    if (Status submitted = Submit(request); !submitted.ok()) {
      --under_way_;
      request.error = EIO;
      request.done = true;
      return submitted;
    }
    return OkStatus();
  }

  Status Poll() override {
    io_uring_cqe* entry = nullptr;
    while (io_uring_peek_cqe(&ring_, &entry) == 0) AIT_RETURN_IF_ERROR(Take(entry));
    return OkStatus();
  }

  Status WaitForAny() override {
    const int before = under_way_;
    while (under_way_ > 0 && under_way_ == before) {
      io_uring_cqe* entry = nullptr;
      const int result = io_uring_wait_cqe(&ring_, &entry);
      if (result == -EINTR || result == -EAGAIN) continue;
      if (result != 0)
        return ErrnoError(-result, "io_uring: waiting for ", under_way_, " requests");
      AIT_RETURN_IF_ERROR(Take(entry));
      AIT_RETURN_IF_ERROR(Poll());
    }
    return OkStatus();
  }

  std::string_view name() const override { return "io_uring"; }

 private:
  Status Take(io_uring_cqe* entry) {
    auto* request = static_cast<FileRequest*>(io_uring_cqe_get_data(entry));
    const std::int64_t result = entry->res;
    io_uring_cqe_seen(&ring_, entry);
    if (Advance(*request, result)) {
      Status submitted = Submit(*request);
      if (submitted.ok()) return submitted;
      request->error = EIO;
      request->done = true;
      --under_way_;
      return submitted;
    }
    request->done = true;
    --under_way_;
    return OkStatus();
  }

  Status Submit(FileRequest& request) {
    io_uring_sqe* const entry = io_uring_get_sqe(&ring_);
    if (entry == nullptr) return InternalError("io_uring: more requests than its depth");
    std::byte* const data = request.data + request.moved;
    const auto bytes = static_cast<unsigned>(request.bytes - request.moved);
    const auto offset = static_cast<std::uint64_t>(request.offset + request.moved);
    if (request.kind == FileRequest::Kind::kRead) {
      io_uring_prep_read(entry, fd_, data, bytes, offset);
    } else {
      io_uring_prep_write(entry, fd_, data, bytes, offset);
    }
    io_uring_sqe_set_data(entry, &request);
    int result = 0;
    do {
      result = io_uring_submit(&ring_);
    } while (result == -EINTR || result == -EAGAIN);
    if (result < 0) return ErrnoError(-result, "io_uring: submitting a request");
    return OkStatus();
  }

  const int fd_;
  io_uring ring_ = {};
  bool open_ = false;
  int under_way_ = 0;
};

}  // namespace

StatusOr<std::unique_ptr<FileIo>> OpenUring(int fd, int depth) {
  auto ring = std::make_unique<Uring>(fd);
  AIT_RETURN_IF_ERROR(ring->Open(depth));
  return std::unique_ptr<FileIo>(std::move(ring));
}

}  // namespace ait::inline v0::internal

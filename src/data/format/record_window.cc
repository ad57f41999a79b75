// SPDX-License-Identifier: Apache-2.0
#include "data/format/record_window_internal.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

namespace ait::inline v0::internal {

Status RecordWindow::NextBlock() {
  block_ = ByteView();  // before the next is read, so that its memory can be used again
  at_ = 0;
  AIT_ASSIGN_OR_RETURN(block_, blocks_->Next());
  return OkStatus();
}

std::shared_ptr<RecordWindow::Joined> RecordWindow::TakeJoined(std::size_t capacity) {
  if (spare_ != nullptr && spare_.use_count() == 1 && spare_->capacity >= capacity) {
    // What the last holder read from it happened before it let go of it.
    std::atomic_thread_fence(std::memory_order_acquire);
    return std::exchange(spare_, nullptr);
  }
  auto joined = std::make_shared<Joined>();
  joined->bytes = std::make_unique_for_overwrite<std::byte[]>(capacity);
  joined->capacity = capacity;
  return joined;
}

StatusOr<std::span<const std::byte>> RecordWindow::Join(std::size_t length) {
  const std::size_t held =
      joined_ == nullptr ? block_.size_bytes() - at_ : joined_end_ - joined_at_;
  if (joined_ == nullptr && held == 0) {  // at the border of two blocks: nothing to join yet
    AIT_RETURN_IF_ERROR(NextBlock());
    if (length <= block_.size_bytes() || block_.is_empty()) return block_.bytes();
    return Join(length);
  }
  if (joined_ == nullptr || joined_at_ + length > joined_->capacity) {
    std::shared_ptr<Joined> larger = TakeJoined(length + length / 2);
    const std::byte* from =
        joined_ == nullptr ? block_.data() + at_ : joined_->bytes.get() + joined_at_;
    std::memcpy(larger->bytes.get(), from, held);
    if (joined_ == nullptr) at_ = block_.size_bytes();
    joined_ = std::move(larger);
    joined_at_ = 0;
    joined_end_ = held;
  }
  while (joined_end_ - joined_at_ < length) {
    if (at_ == block_.size_bytes()) {
      AIT_RETURN_IF_ERROR(NextBlock());
      if (block_.is_empty()) break;
    }
    const std::size_t part =
        std::min(length - (joined_end_ - joined_at_), block_.size_bytes() - at_);
    std::memcpy(joined_->bytes.get() + joined_end_, block_.data() + at_, part);
    joined_end_ += part;
    at_ += part;
  }
  return std::span<const std::byte>(joined_->bytes.get() + joined_at_, joined_end_ - joined_at_);
}

Status RecordWindow::Skip(std::size_t length) {
  offset_ += static_cast<std::int64_t>(length);
  if (joined_ != nullptr) {
    const std::size_t part = std::min(length, joined_end_ - joined_at_);
    joined_at_ += part;
    length -= part;
    // The rest of what was joined lies at the beginning of the block as well.
    const std::size_t rest = joined_end_ - joined_at_;
    if (rest > at_) return OkStatus();
    at_ -= rest;
    spare_ = std::exchange(joined_, nullptr);
  }
  while (length > block_.size_bytes() - at_) {
    length -= block_.size_bytes() - at_;
    AIT_RETURN_IF_ERROR(NextBlock());
    if (block_.is_empty()) {
      offset_ -= static_cast<std::int64_t>(length);
      return OkStatus();
    }
  }
  at_ += length;
  return OkStatus();
}

}  // namespace ait::inline v0::internal

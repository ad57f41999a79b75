// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_RECORD_WINDOW_INTERNAL_H_
#define AIT_DATA_FORMAT_RECORD_WINDOW_INTERNAL_H_

// The bytes of a stream from some place on, lying together however its blocks are cut.
//
// A reader of records asks for as many bytes as the record needs, one header after the other, and
// then moves on behind it. A record within a block is a view of the block; only one that lies over
// the border of two is copied together.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "ait/base/status.h"
#include "ait/data/byte_view.h"
#include "ait/data/storage/storage.h"

namespace ait::inline v0 {
namespace internal {

class RecordWindow {
 public:
  /// `blocks` begin at byte `offset_bytes` of their object.
  RecordWindow(std::unique_ptr<ObjectStream> blocks, std::int64_t offset_bytes)
      : blocks_(std::move(blocks)), offset_(offset_bytes) {}

  /// Where the window begins, in bytes of the object.
  std::int64_t offset_bytes() const { return offset_; }

  /// The bytes from there on that lie together: at least `length`, unless the object ends before.
  /// Valid until the next call of a function that is not const.
  StatusOr<std::span<const std::byte>> Ensure(std::size_t length) {
    if (joined_ == nullptr && length <= block_.size_bytes() - at_) [[likely]] {
      return block_.bytes().subspan(at_);
    }
    return Join(length);
  }

  /// The first `length` bytes, which `Ensure` has brought together; they stay as they are for as
  /// long as a view of them lives.
  ByteView View(std::size_t length) const {
    if (joined_ == nullptr) return block_.Slice(at_, length);
    return {std::span<const std::byte>(joined_->bytes.get() + joined_at_, length), joined_};
  }

  /// Moves the window on by `length` bytes, or to the end of the object.
  Status Advance(std::size_t length) {
    if (joined_ == nullptr && length <= block_.size_bytes() - at_) [[likely]] {
      at_ += length;
      offset_ += static_cast<std::int64_t>(length);
      return OkStatus();
    }
    return Skip(length);
  }

 private:
  struct Joined {
    std::unique_ptr<std::byte[]> bytes;
    std::size_t capacity = 0;
  };

  StatusOr<std::span<const std::byte>> Join(std::size_t length);
  Status Skip(std::size_t length);
  // The next block in place of `block_`; empty at the end.
  Status NextBlock();
  std::shared_ptr<Joined> TakeJoined(std::size_t capacity);

  std::unique_ptr<ObjectStream> blocks_;
  std::int64_t offset_;
  ByteView block_;
  std::size_t at_ = 0;  // first byte of `block_` that is not before the window, nor in `joined_`
  // If set, the window begins at joined_at_ in here, and goes on at at_ in the block.
  std::shared_ptr<Joined> joined_;
  std::size_t joined_at_ = 0;
  std::size_t joined_end_ = 0;
  std::shared_ptr<Joined> spare_;
};

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_RECORD_WINDOW_INTERNAL_H_

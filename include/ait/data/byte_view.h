// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_BYTE_VIEW_H_
#define AIT_DATA_BYTE_VIEW_H_

// Bytes, and whoever keeps them alive.
//
// A sample is cut out of a block of many without a copy: every part of it is a `ByteView` that
// shares the block, and the block is used again once the last view of it is gone.
//
//   ByteView block(buffer->bytes(), buffer);       // a std::shared_ptr to whatever owns the bytes
//   ByteView image = block.Slice(512, 20'000);     // the same owner, no copy
//
// Whoever keeps a small view for long keeps its whole block: `Copy` gives it memory of its own.
// **Thread-safety.** As of a std::shared_ptr; the bytes never change while a view of them lives.

#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <string_view>
#include <utility>

namespace ait::inline v0 {

class ByteView {
 public:
  /// No bytes.
  ByteView() = default;
  /// `bytes` live as long as `owner` does; no owner: for ever, as a literal's do.
  ByteView(std::span<const std::byte> bytes, std::shared_ptr<const void> owner)
      : bytes_(bytes), owner_(std::move(owner)) {}

  /// A view of a copy. Throws std::bad_alloc where there is no memory for it.
  static ByteView Copy(std::span<const std::byte> bytes);
  static ByteView Copy(std::string_view text) { return Copy(std::as_bytes(std::span(text))); }

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::byte* data() const { return bytes_.data(); }
  std::size_t size_bytes() const { return bytes_.size(); }
  bool is_empty() const { return bytes_.empty(); }
  /// The bytes as characters.
  std::string_view text() const {
    return {reinterpret_cast<const char*>(bytes_.data()), bytes_.size()};
  }
  const std::shared_ptr<const void>& owner() const { return owner_; }

  /// `length` bytes from `offset`, which must lie within.
  ByteView Slice(std::size_t offset, std::size_t length) const {
    return {bytes_.subspan(offset, length), owner_};
  }

 private:
  std::span<const std::byte> bytes_;
  std::shared_ptr<const void> owner_;
};

}  // namespace ait::inline v0

#endif  // AIT_DATA_BYTE_VIEW_H_

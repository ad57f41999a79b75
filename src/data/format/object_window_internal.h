// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMAT_OBJECT_WINDOW_INTERNAL_H_
#define AIT_DATA_FORMAT_OBJECT_WINDOW_INTERNAL_H_

// Headers of an object, read in pieces as one walks over it.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>

#include "ait/base/status.h"
#include "ait/data/storage/storage.h"

namespace ait::inline v0 {
namespace internal {

class ObjectWindow {
 public:
  /// Bytes read at once: small records lie within, large ones are jumped over.
  static constexpr std::int64_t kReadBytes = 128 << 10;

  /// `object` outlives the window.
  explicit ObjectWindow(const StoredObject& object) : object_(object) {}

  /// What is there from `offset` on: at least `length` bytes unless the object ends before. Valid
  /// until the next call.
  StatusOr<std::span<const std::byte>> At(std::int64_t offset, std::int64_t length) {
    length = std::min(length, object_.info().size_bytes - offset);
    if (offset < begin_ || offset + length > begin_ + filled_) {
      const std::int64_t wanted =
          std::min(std::max(length, kReadBytes), object_.info().size_bytes - offset);
      if (wanted > capacity_) {
        bytes_ = std::make_unique_for_overwrite<std::byte[]>(static_cast<std::size_t>(wanted));
        capacity_ = wanted;
      }
      filled_ = 0;
      AIT_RETURN_IF_ERROR(object_.ReadAt(offset, {bytes_.get(), static_cast<std::size_t>(wanted)}));
      begin_ = offset;
      filled_ = wanted;
    }
    return std::span<const std::byte>(bytes_.get() + (offset - begin_),
                                      static_cast<std::size_t>(begin_ + filled_ - offset));
  }

 private:
  const StoredObject& object_;
  std::unique_ptr<std::byte[]> bytes_;
  std::int64_t capacity_ = 0;
  std::int64_t begin_ = 0;
  std::int64_t filled_ = 0;
};

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMAT_OBJECT_WINDOW_INTERNAL_H_

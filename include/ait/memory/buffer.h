// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_MEMORY_BUFFER_H_
#define AIT_MEMORY_BUFFER_H_

// Bytes of a memory resource that give themselves back.
//
//   AIT_ASSIGN_OR_RETURN(HostBuffer buffer, HostBuffer::Create(heap, count * sizeof(float)));
//   std::span<float> values = buffer.As<float>();
//   std::fill(values.begin(), values.end(), 0.0f);      // contents are unspecified at first
//
// A buffer does not grow, and is not a container of objects. **Thread-safety.** As of an int.

#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>
#include <utility>

#include "ait/base/status.h"
#include "ait/memory/resource.h"

namespace ait::inline v0 {

class HostBuffer {
 public:
  /// No bytes, no resource.
  HostBuffer() = default;

  /// Allocates `bytes` bytes; zero is allowed. **Errors.** Those of MemoryHandle::Allocate; and
  /// InvalidArgument: the memory is a device's.
  static StatusOr<HostBuffer> Create(MemoryHandle memory, std::size_t bytes,
                                     std::size_t alignment = MemoryResource::kMinAlignment);

  HostBuffer(HostBuffer&& other) noexcept { Swap(other); }
  HostBuffer& operator=(HostBuffer&& other) noexcept {
    HostBuffer(std::move(other)).Swap(*this);
    return *this;
  }
  ~HostBuffer() { memory_.Deallocate(data_, bytes_, alignment_); }

  /// nullptr if it has no bytes.
  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  std::size_t size_bytes() const { return bytes_; }
  std::span<std::byte> bytes() { return {data_, bytes_}; }
  std::span<const std::byte> bytes() const { return {data_, bytes_}; }
  const MemoryHandle& memory() const { return memory_; }

  /// The bytes as numbers of type T; bytes at the end that are less than one T are left out.
  template <typename T>
    requires std::is_trivially_copyable_v<T>
  std::span<T> As() {
    return {reinterpret_cast<T*>(data_), bytes_ / sizeof(T)};
  }
  template <typename T>
    requires std::is_trivially_copyable_v<T>
  std::span<const T> As() const {
    return {reinterpret_cast<const T*>(data_), bytes_ / sizeof(T)};
  }

  /// Sets every byte to zero.
  void Zero() {
    if (bytes_ != 0) std::memset(data_, 0, bytes_);
  }

 private:
  void Swap(HostBuffer& other) noexcept {
    std::swap(memory_, other.memory_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(alignment_, other.alignment_);
  }

  MemoryHandle memory_;
  std::byte* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::size_t alignment_ = MemoryResource::kMinAlignment;
};

static_assert(std::is_nothrow_move_constructible_v<HostBuffer>);

}  // namespace ait::inline v0

#endif  // AIT_MEMORY_BUFFER_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_BUFFER_H_
#define AIT_COMM_BUFFER_H_

// Views of contiguous elements that a collective reads and writes: address, count and dtype.
//
// A view owns nothing; the memory behind it stays valid and, for an output, untouched by anybody
// else from the call until the `Work` it returned is done.
//
//   std::vector<float> gradient(1000);
//   communicator->AllReduce(View(gradient), ReduceOp::kSum).Wait();

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <type_traits>

#include "ait/base/dtype.h"
#include "ait/base/types.h"

namespace ait::inline v0 {

/// Elements that may be written. `data` is aligned to the element; null only if `count` is 0.
struct Buffer {
  void* data = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::kFloat32;

  Bytes bytes() const { return Bytes(count * SizeOf(dtype)); }
  /// Elements [begin, begin + length). The range must lie inside.
  Buffer Slice(std::int64_t begin, std::int64_t length) const {
    return {static_cast<std::byte*>(data) + begin * SizeOf(dtype), length, dtype};
  }
};

/// Elements that are only read.
struct ConstBuffer {
  const void* data = nullptr;
  std::int64_t count = 0;
  DType dtype = DType::kFloat32;

  ConstBuffer() = default;
  ConstBuffer(const void* data, std::int64_t count, DType dtype)
      : data(data), count(count), dtype(dtype) {}
  ConstBuffer(const Buffer& buffer)  // NOLINT: implicit by design
      : data(buffer.data), count(buffer.count), dtype(buffer.dtype) {}

  Bytes bytes() const { return Bytes(count * SizeOf(dtype)); }
  ConstBuffer Slice(std::int64_t begin, std::int64_t length) const {
    return {static_cast<const std::byte*>(data) + begin * SizeOf(dtype), length, dtype};
  }
};

/// View of a contiguous range such as std::vector<float>, std::array or std::span.
template <std::ranges::contiguous_range Range>
auto View(Range&& range) {
  using Element = std::ranges::range_value_t<Range>;
  const auto count = static_cast<std::int64_t>(std::ranges::size(range));
  if constexpr (std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<Range>>>) {
    return ConstBuffer(std::ranges::data(range), count, kDTypeOf<Element>);
  } else {
    return Buffer{std::ranges::data(range), count, kDTypeOf<Element>};
  }
}

}  // namespace ait::inline v0

#endif  // AIT_COMM_BUFFER_H_

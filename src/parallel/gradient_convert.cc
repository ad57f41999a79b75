// SPDX-License-Identifier: Apache-2.0
#include "parallel/gradient_convert_internal.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "comm/half.h"

namespace ait::inline v0::internal {
namespace {

constexpr std::int64_t kPiece = 2048;  // elements: a buffer on the stack

template <typename Half>
void Narrow(const float* from, Half* to, std::int64_t count) {
  std::array<Half, kPiece> piece;
  for (std::int64_t i = 0; i < count; i += kPiece) {
    const std::int64_t n = std::min(kPiece, count - i);
    FromFloat(from + i, piece.data(), n);
    std::memcpy(to + i, piece.data(), static_cast<std::size_t>(n) * sizeof(Half));
  }
}

// From the end: what is written lies behind what is still to be read.
template <typename Half>
void WidenHalf(const Half* from, float* to, std::int64_t count) {
  std::array<Half, kPiece> piece;
  for (std::int64_t end = count; end > 0;) {
    const std::int64_t n = (end - 1) % kPiece + 1;
    end -= n;
    std::memcpy(piece.data(), from + end, static_cast<std::size_t>(n) * sizeof(Half));
    ToFloat(piece.data(), to + end, n);
  }
}

template <typename T>
void Add(const T* from, T* to, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] += from[i];
}

template <typename Half>
void AddHalfToFloat(const Half* from, float* to, std::int64_t count) {
  std::array<float, kPiece> piece;
  for (std::int64_t i = 0; i < count; i += kPiece) {
    const std::int64_t n = std::min(kPiece, count - i);
    ToFloat(from + i, piece.data(), n);
    Add(piece.data(), to + i, n);
  }
}

template <typename Half>
void AddHalf(const Half* from, Half* to, std::int64_t count) {
  std::array<float, kPiece> sum;
  for (std::int64_t i = 0; i < count; i += kPiece) {
    const std::int64_t n = std::min(kPiece, count - i);
    ToFloat(to + i, sum.data(), n);
    AddHalfToFloat(from + i, sum.data(), n);
    FromFloat(sum.data(), to + i, n);
  }
}

template <typename T>
const T* From(const ConstBuffer& buffer) {
  return static_cast<const T*>(buffer.data);
}
template <typename T>
T* To(const Buffer& buffer) {
  return static_cast<T*>(buffer.data);
}

}  // namespace

Buffer NarrowInPlace(const Buffer& buffer, DType dtype) {
  if (buffer.dtype == dtype) return buffer;
  if (dtype == DType::kBFloat16) {
    Narrow(To<float>(buffer), To<BFloat16>(buffer), buffer.count);
  } else {
    Narrow(To<float>(buffer), To<Float16>(buffer), buffer.count);
  }
  return {buffer.data, buffer.count, dtype};
}

void Widen(const ConstBuffer& from, const Buffer& to) {
  if (from.dtype == to.dtype) {
    if (from.data == to.data || to.count == 0) return;
    std::memcpy(to.data, from.data, static_cast<std::size_t>(to.bytes().value()));
  } else if (from.dtype == DType::kBFloat16) {
    WidenHalf(From<BFloat16>(from), To<float>(to), to.count);
  } else {
    WidenHalf(From<Float16>(from), To<float>(to), to.count);
  }
}

void AddWidened(const ConstBuffer& from, const Buffer& to) {
  const bool is_wider = from.dtype != to.dtype;
  switch (from.dtype) {
    case DType::kFloat64:
      return Add(From<double>(from), To<double>(to), to.count);
    case DType::kBFloat16:
      return is_wider ? AddHalfToFloat(From<BFloat16>(from), To<float>(to), to.count)
                      : AddHalf(From<BFloat16>(from), To<BFloat16>(to), to.count);
    case DType::kFloat16:
      return is_wider ? AddHalfToFloat(From<Float16>(from), To<float>(to), to.count)
                      : AddHalf(From<Float16>(from), To<Float16>(to), to.count);
    default:
      return Add(From<float>(from), To<float>(to), to.count);
  }
}

void SetZero(const Buffer& buffer) {
  if (buffer.count == 0) return;
  std::memset(buffer.data, 0, static_cast<std::size_t>(buffer.bytes().value()));
}

void SetPaddingZero(const FlatLayout& layout, int b, const Buffer& whole) {
  const FlatBucket& bucket = layout.buckets()[static_cast<std::size_t>(b)];
  std::int64_t end = 0;
  for (const int parameter : bucket.parameters) {
    const FlatSlot& slot = *layout.slot(parameter);
    if (slot.count == 0) continue;
    const std::int64_t begin = slot.offset - bucket.begin;
    SetZero(whole.Slice(end, begin - end));
    end = begin + slot.count;
  }
  SetZero(whole.Slice(end, whole.count - end));
}

}  // namespace ait::inline v0::internal

// SPDX-License-Identifier: Apache-2.0
#include "ait/data/decode/array_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

#include "ait/base/float16.h"

namespace ait::inline v0 {
namespace {

/// Calls `function` with a value of the C++ type of `dtype`.
template <typename Function>
auto WithType(DType dtype, const Function& function) {
  switch (dtype) {
    case DType::kUInt8:
      return function(std::uint8_t{});
    case DType::kInt8:
      return function(std::int8_t{});
    case DType::kInt16:
      return function(std::int16_t{});
    case DType::kInt32:
      return function(std::int32_t{});
    case DType::kInt64:
      return function(std::int64_t{});
    case DType::kFloat16:
      return function(Float16{});
    case DType::kBFloat16:
      return function(BFloat16{});
    case DType::kFloat32:
      return function(float{});
    case DType::kFloat64:
      return function(double{});
    case DType::kBool:
      return function(bool{});
    case DType::kUInt16:
      return function(std::uint16_t{});
    case DType::kUInt32:
      break;
  }
  return function(std::uint32_t{});
}

template <typename T>
inline constexpr bool kIsSmallFloat = std::is_same_v<T, Float16> || std::is_same_v<T, BFloat16>;
template <typename T>
inline constexpr bool kIsFloat = std::is_floating_point_v<T> || kIsSmallFloat<T>;

/// What numbers of a type are computed in: int64 or double; both hold all of them.
template <typename T>
using Wide = std::conditional_t<kIsFloat<T>, double, std::int64_t>;

template <typename T>
Wide<T> Read(const std::byte* from) {
  if constexpr (std::is_same_v<T, bool>) return *from != std::byte{0} ? 1 : 0;
  T value;
  std::memcpy(&value, from, sizeof(T));
  if constexpr (kIsSmallFloat<T>) {
    return static_cast<double>(static_cast<float>(value));
  } else {
    return static_cast<Wide<T>>(value);
  }
}

/// A double to float with the last bit odd if it was not exact: to round it again, to 16 bits, is
/// then to round once.
float ToOddFloat(double value) {
  const auto nearest = static_cast<float>(value);
  if (static_cast<double>(nearest) == value || std::isnan(value) || std::isinf(nearest)) {
    return nearest;
  }
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (std::abs(static_cast<double>(nearest)) > std::abs(value)) --bits;  // towards zero
  return std::bit_cast<float>(bits | 1U);
}

/// False if `value` has no place in T.
template <typename T, typename W>
bool Write(W value, std::byte* to) {
  T result{};
  if constexpr (std::is_same_v<T, bool>) {
    *to = value != W{0} ? std::byte{1} : std::byte{0};
    return true;
  } else if constexpr (kIsSmallFloat<T>) {
    result = T(ToOddFloat(static_cast<double>(value)));
  } else if constexpr (kIsFloat<T>) {
    result = static_cast<T>(value);
  } else if constexpr (kIsFloat<W>) {
    // 2^digits is a double for every type, its greatest number is not.
    constexpr double kEnd = static_cast<double>(std::numeric_limits<T>::max() / 2 + 1) * 2;
    constexpr double kBegin = std::is_signed_v<T> ? -kEnd : 0;
    const double whole = std::trunc(value);
    if (!(whole >= kBegin && whole < kEnd)) return false;
    result = static_cast<T>(whole);
  } else {
    if (!std::in_range<T>(value)) return false;
    result = static_cast<T>(value);
  }
  std::memcpy(to, &result, sizeof(T));
  return true;
}

/// Memory for an array; throws std::bad_alloc.
struct Memory {
  explicit Memory(std::int64_t size)
      : bytes(std::make_shared_for_overwrite<std::byte[]>(static_cast<std::size_t>(size))) {}
  std::shared_ptr<std::byte[]> bytes;
};

SampleField ArrayOver(std::string name, DType dtype, std::vector<std::int64_t> shape,
                      const Memory& memory) {
  const auto size = static_cast<std::size_t>(ElementCount(shape) * SizeOf(dtype));
  return {.name = std::move(name),
          .value = ByteView({memory.bytes.get(), size}, memory.bytes),
          .kind = FieldKind::kArray,
          .dtype = dtype,
          .shape = std::move(shape)};
}

StatusOr<std::int64_t> ByteCount(const std::vector<std::int64_t>& shape, DType dtype) {
  constexpr std::int64_t kMax = std::int64_t{1} << 46;
  const std::int64_t count = ElementCount(shape);
  if (count < 0 || count > kMax)
    return InvalidArgumentError("an array would have too many numbers");
  return count * SizeOf(dtype);
}

/// An array as rows: before the padded dimension, of it, and after.
struct Rows {
  std::int64_t outer = 1;
  std::int64_t length = 1;
  std::int64_t inner_bytes = 1;
};

StatusOr<Rows> RowsOf(const SampleField& array, int dimension) {
  AIT_RETURN_IF_ERROR(CheckArray(array));
  if (dimension < 0 || static_cast<std::size_t>(dimension) >= array.shape.size()) {
    return InvalidArgumentError("field ", array.name, " has ", array.shape.size(),
                                " dimensions; dimension ", dimension, " cannot be padded");
  }
  Rows rows;
  rows.inner_bytes = SizeOf(array.dtype);
  for (int d = 0; d < static_cast<int>(array.shape.size()); ++d) {
    const std::int64_t size = array.shape[static_cast<std::size_t>(d)];
    if (d < dimension) rows.outer *= size;
    if (d == dimension) rows.length = size;
    if (d > dimension) rows.inner_bytes *= size;
  }
  return rows;
}

StatusOr<std::int64_t> PaddedLength(std::int64_t longest, const PadOptions& options) {
  if (options.multiple < 1 || options.multiple > 1 << 30) {
    return InvalidArgumentError("padding to a multiple of ", options.multiple,
                                " was asked for; it must be 1 or more");
  }
  const std::int64_t length = options.length.value_or(longest);
  if (length < 0 || length > std::int64_t{1} << 46) {
    return InvalidArgumentError("padding to a length of ", length, " was asked for");
  }
  return (length + options.multiple - 1) / options.multiple * options.multiple;
}

Status CheckLength(const SampleField& array, std::int64_t length, const PadOptions& options) {
  if (!options.length.has_value() || length <= *options.length ||
      options.too_long == TooLong::kCut) {
    return OkStatus();
  }
  return InvalidArgumentError("field ", array.name, " is ", length, " long; allowed are ",
                              *options.length, " (or cut it: TooLong::kCut)");
}

/// Writes `array`, cut to `kept` and padded to `length`.
void WritePadded(const SampleField& array, const Rows& rows, std::int64_t kept, std::int64_t length,
                 std::span<const std::byte> value, std::byte* to) {
  const std::byte* from = array.value.data();
  const auto kept_bytes = static_cast<std::size_t>(kept * rows.inner_bytes);
  const auto pad_bytes = static_cast<std::size_t>((length - kept) * rows.inner_bytes);
  for (std::int64_t i = 0; i < rows.outer; ++i) {
    if (kept_bytes > 0) std::memcpy(to, from, kept_bytes);
    from += rows.length * rows.inner_bytes;
    to += kept_bytes;
    for (std::size_t p = 0; p < pad_bytes; p += value.size()) {
      std::memcpy(to + p, value.data(), value.size());
    }
    to += pad_bytes;
  }
}

StatusOr<std::vector<std::byte>> PadValue(const SampleField& array, const PadOptions& options) {
  std::vector<std::byte> value(static_cast<std::size_t>(SizeOf(array.dtype)));
  const bool has_place = WithType(
      array.dtype, [&](auto type) { return Write<decltype(type)>(options.value, value.data()); });
  if (has_place) return value;
  return InvalidArgumentError("field ", array.name, " of ", Name(array.dtype),
                              " cannot be padded with ", options.value);
}

Status NoMemory(const std::string& name) {
  return ResourceExhaustedError("no memory for field ", name);
}

}  // namespace

Status CheckArray(const SampleField& field) {
  if (field.kind != FieldKind::kArray) {
    return InvalidArgumentError("field ", field.name, " is not an array; parse or decode it first");
  }
  const std::int64_t count = ElementCount(field.shape);
  const auto size = static_cast<std::int64_t>(field.value.size_bytes());
  const int element = SizeOf(field.dtype);
  if (count < 0 || size % element != 0 || count != size / element) {
    return InvalidArgumentError("field ", field.name, " has ", size, " bytes, not those of ", count,
                                " numbers of ", Name(field.dtype));
  }
  return OkStatus();
}

StatusOr<SampleField> ConvertArray(const SampleField& array, DType dtype) {
  AIT_RETURN_IF_ERROR(CheckArray(array));
  if (array.dtype == dtype) return array;
  AIT_ASSIGN_OR_RETURN(const std::int64_t size, ByteCount(array.shape, dtype));
  const std::int64_t count = ElementCount(array.shape);
  try {
    const Memory memory(size);
    // The number of the first that has no place; −1 if all have one.
    const std::int64_t misfit = WithType(array.dtype, [&](auto source) -> std::int64_t {
      return WithType(dtype, [&](auto target) -> std::int64_t {
        const std::byte* from = array.value.data();
        std::byte* to = memory.bytes.get();
        bool all_fit = true;
        for (std::int64_t i = 0; i < count; ++i) {
          const auto value = Read<decltype(source)>(from + i * std::int64_t{sizeof(source)});
          all_fit &= Write<decltype(target)>(value, to + i * std::int64_t{sizeof(target)});
          if (!all_fit) return i;
        }
        return -1;
      });
    });
    if (misfit >= 0) {
      return InvalidArgumentError("number ", misfit, " of field ", array.name, " has no place in ",
                                  Name(dtype));
    }
    return ArrayOver(array.name, dtype, array.shape, memory);
  } catch (const std::bad_alloc&) {
    return NoMemory(array.name);
  }
}

StatusOr<SampleField> OneHotArray(const SampleField& array, std::int64_t classes, DType dtype) {
  AIT_RETURN_IF_ERROR(CheckArray(array));
  if (classes < 1)
    return InvalidArgumentError("one-hot of ", classes, " classes; allowed are 1 or more");
  if (IsFloatingPoint(array.dtype)) {
    return InvalidArgumentError("field ", array.name, " has numbers of ", Name(array.dtype),
                                "; classes must be integers");
  }
  AIT_ASSIGN_OR_RETURN(const SampleField wide, ConvertArray(array, DType::kInt64));
  std::vector<std::int64_t> shape = array.shape;
  shape.push_back(classes);
  AIT_ASSIGN_OR_RETURN(const std::int64_t size, ByteCount(shape, dtype));
  const std::int64_t count = ElementCount(array.shape);
  try {
    const Memory memory(size);
    std::memset(memory.bytes.get(), 0, static_cast<std::size_t>(size));
    for (std::int64_t i = 0; i < count; ++i) {
      const std::int64_t value = Read<std::int64_t>(wide.value.data() + i * 8);
      if (value < 0 || value >= classes) {
        return InvalidArgumentError("class ", value, " of field ", array.name, " is none of 0 to ",
                                    classes - 1);
      }
      std::byte* to = memory.bytes.get() + (i * classes + value) * SizeOf(dtype);
      WithType(dtype, [&](auto type) { return Write<decltype(type)>(std::int64_t{1}, to); });
    }
    return ArrayOver(array.name, dtype, std::move(shape), memory);
  } catch (const std::bad_alloc&) {
    return NoMemory(array.name);
  }
}

StatusOr<SampleField> PadArray(const SampleField& array, const PadOptions& options) {
  AIT_ASSIGN_OR_RETURN(const Rows rows, RowsOf(array, options.dimension));
  AIT_RETURN_IF_ERROR(CheckLength(array, rows.length, options));
  AIT_ASSIGN_OR_RETURN(const std::int64_t length, PaddedLength(rows.length, options));
  const std::int64_t kept = std::min(rows.length, options.length.value_or(rows.length));
  if (length == rows.length && kept == length) return array;
  AIT_ASSIGN_OR_RETURN(const auto value, PadValue(array, options));
  std::vector<std::int64_t> shape = array.shape;
  shape[static_cast<std::size_t>(options.dimension)] = length;
  AIT_ASSIGN_OR_RETURN(const std::int64_t size, ByteCount(shape, array.dtype));
  try {
    const Memory memory(size);
    WritePadded(array, rows, kept, length, value, memory.bytes.get());
    return ArrayOver(array.name, array.dtype, std::move(shape), memory);
  } catch (const std::bad_alloc&) {
    return NoMemory(array.name);
  }
}

StatusOr<PaddedStack> StackPadded(std::span<const SampleField* const> arrays,
                                  const PadOptions& options) {
  if (arrays.empty()) return InvalidArgumentError("no arrays were given to stack");
  const SampleField& first = *arrays.front();
  std::vector<Rows> rows;
  PaddedStack stack;
  std::int64_t longest = 0;
  for (const SampleField* array : arrays) {
    AIT_ASSIGN_OR_RETURN(rows.emplace_back(), RowsOf(*array, options.dimension));
    AIT_RETURN_IF_ERROR(CheckLength(*array, rows.back().length, options));
    std::vector<std::int64_t> shape = array->shape;
    shape[static_cast<std::size_t>(options.dimension)] =
        first.shape[static_cast<std::size_t>(options.dimension)];
    if (array->dtype != first.dtype || shape != first.shape) {
      return InvalidArgumentError("array ", rows.size() - 1, " of field ", first.name,
                                  " has another type than the first, or another shape besides "
                                  "dimension ",
                                  options.dimension, "; only that one is padded");
    }
    stack.lengths.push_back(
        std::min(rows.back().length, options.length.value_or(rows.back().length)));
    longest = std::max(longest, stack.lengths.back());
  }
  AIT_ASSIGN_OR_RETURN(const std::int64_t length, PaddedLength(longest, options));
  AIT_ASSIGN_OR_RETURN(const auto value, PadValue(first, options));
  std::vector<std::int64_t> shape = first.shape;
  shape[static_cast<std::size_t>(options.dimension)] = length;
  AIT_ASSIGN_OR_RETURN(const std::int64_t each, ByteCount(shape, first.dtype));
  const auto count = static_cast<std::int64_t>(arrays.size());
  shape.insert(shape.begin(), count);
  AIT_ASSIGN_OR_RETURN(const std::int64_t size, ByteCount(shape, first.dtype));
  const std::vector<std::int64_t> mask_shape = {count, length};
  AIT_ASSIGN_OR_RETURN(const std::int64_t mask_size, ByteCount(mask_shape, DType::kBool));
  try {
    const Memory memory(size);
    const Memory mask(mask_size);
    std::byte* mask_to = mask.bytes.get();
    for (std::size_t i = 0; i < arrays.size(); ++i) {
      const std::int64_t kept = stack.lengths[i];
      WritePadded(*arrays[i], rows[i], kept, length, value,
                  memory.bytes.get() + static_cast<std::int64_t>(i) * each);
      mask_to = std::fill_n(mask_to, kept, std::byte{1});
      mask_to = std::fill_n(mask_to, length - kept, std::byte{0});
    }
    stack.values = ArrayOver(first.name, first.dtype, std::move(shape), memory);
    stack.mask = ArrayOver(StrCat(first.name, "_mask"), DType::kBool, mask_shape, mask);
    return stack;
  } catch (const std::bad_alloc&) {
    return NoMemory(first.name);
  }
}

}  // namespace ait::inline v0

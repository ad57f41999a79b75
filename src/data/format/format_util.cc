// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <charconv>
#include <cstring>
#include <utility>

#include "ait/data/decode/compress.h"
#include "data/format/format_util_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

template <typename Word>
Word SwapWord(Word value) {
  if constexpr (sizeof(Word) == 2) return __builtin_bswap16(value);
  if constexpr (sizeof(Word) == 4) return __builtin_bswap32(value);
  if constexpr (sizeof(Word) == 8) return __builtin_bswap64(value);
}

template <typename Word>
void SwapAs(std::span<const std::byte> from, std::byte* to) {
  for (std::size_t at = 0; at < from.size(); at += sizeof(Word)) {
    Word word;
    std::memcpy(&word, from.data() + at, sizeof(Word));
    word = SwapWord(word);
    std::memcpy(to + at, &word, sizeof(Word));
  }
}

ByteView Swapped(const ByteView& value, int size) {
  auto bytes = std::make_shared_for_overwrite<std::byte[]>(value.size_bytes());
  if (size == 2) SwapAs<std::uint16_t>(value.bytes(), bytes.get());
  if (size == 4) SwapAs<std::uint32_t>(value.bytes(), bytes.get());
  if (size == 8) SwapAs<std::uint64_t>(value.bytes(), bytes.get());
  const std::span<const std::byte> view(bytes.get(), value.size_bytes());
  return ByteView(view, std::move(bytes));
}

bool FitsInt64(std::span<const std::byte> numbers) {
  std::uint64_t all = 0;
  for (std::size_t at = 0; at < numbers.size(); at += 8) {
    std::uint64_t value;
    std::memcpy(&value, numbers.data() + at, 8);
    all |= value;
  }
  return all >> 63 == 0;
}

}  // namespace

std::optional<NumberType> NumberTypeFromName(std::string_view name) {
  if (name == "uint64") return NumberType{.dtype = DType::kInt64, .is_uint64 = true};
  const std::optional<DType> dtype = DTypeFromName(name);
  if (!dtype) return std::nullopt;
  return NumberType{.dtype = *dtype};
}

std::int64_t ArrayBytes(DType dtype, const std::vector<std::int64_t>& shape) {
  std::int64_t bytes = ElementCount(shape);
  if (bytes < 0 || __builtin_mul_overflow(bytes, SizeOf(dtype), &bytes)) return -1;
  return bytes;
}

std::string_view BaseName(std::string_view url) {
  const std::size_t slash = url.rfind('/');
  return slash == std::string_view::npos ? url : url.substr(slash + 1);
}

std::string_view DirectoryOf(std::string_view url) {
  const std::size_t slash = url.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : url.substr(0, slash + 1);
}

bool HasExtension(std::string_view url, std::string_view extension) {
  const std::string_view name = BaseName(WithoutCompressionSuffix(url));
  return name.size() > extension.size() &&
         LowerCase(name.substr(name.size() - extension.size())) == extension;
}

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

bool BeginsWith(std::span<const std::byte> bytes, std::string_view magic) {
  return bytes.size() >= magic.size() && std::memcmp(bytes.data(), magic.data(), magic.size()) == 0;
}

bool IsUtf8(std::string_view text) {
  // RFC 3629: no overlong forms, no surrogates, nothing above U+10FFFF.
  const auto* at = reinterpret_cast<const unsigned char*>(text.data());
  const auto* end = at + text.size();
  while (at < end) {
    if (end - at >= 8) {
      std::uint64_t word;
      std::memcpy(&word, at, 8);
      if ((word & 0x8080808080808080u) == 0) {
        at += 8;
        continue;
      }
    }
    const unsigned char first = *at++;
    if (first < 0x80) continue;
    if (first < 0xC2 || first > 0xF4) return false;
    const int more = first < 0xE0 ? 1 : first < 0xF0 ? 2 : 3;
    if (end - at < more) return false;
    const unsigned char second = *at;
    if ((first == 0xE0 && second < 0xA0) || (first == 0xED && second > 0x9F) ||
        (first == 0xF0 && second < 0x90) || (first == 0xF4 && second > 0x8F)) {
      return false;
    }
    for (int i = 0; i < more; ++i) {
      if ((*at++ & 0xC0) != 0x80) return false;
    }
  }
  return true;
}

StatusOr<ByteView> ReadRange(const StoredObject& object, std::int64_t offset_bytes,
                             std::int64_t length_bytes, std::int64_t limit_bytes) {
  const ObjectInfo& info = object.info();
  if (offset_bytes < 0 || length_bytes < 0 || offset_bytes > info.size_bytes ||
      length_bytes > info.size_bytes - offset_bytes) {
    return DataLossError(info.url, " is truncated or damaged: ", length_bytes, " bytes from byte ",
                         offset_bytes, " do not lie in its ", info.size_bytes, " bytes");
  }
  if (length_bytes > limit_bytes) {
    return DataLossError(info.url, ": ", length_bytes, " bytes at byte ", offset_bytes,
                         " are more than the ", limit_bytes, " that may be there");
  }
  const auto size = static_cast<std::size_t>(length_bytes);
  auto bytes = std::make_shared_for_overwrite<std::byte[]>(size);
  const std::span<std::byte> out(bytes.get(), size);
  AIT_RETURN_IF_ERROR(object.ReadAt(offset_bytes, out));
  return ByteView(out, std::move(bytes));
}

std::string DescribeRecord(const ShardReader& shard, std::int64_t record) {
  return StrCat(shard.object().info().url, ", record ", record, " at byte ",
                shard.extent(record).offset_bytes);
}

// The number of the record is left in `id`, too: by it a collection of many shards, where it stands
// more than once, knows to put the number in the whole in its place.
void SampleBuilder::SetKey(std::int64_t number) {
  sample_.id = number;
  char digits[24];
  sample_.key.assign(digits, std::to_chars(digits, digits + sizeof(digits), number).ptr);
}

SampleField& SampleBuilder::Next(std::string_view name) {
  if (count_ == sample_.fields.size()) sample_.fields.emplace_back();
  SampleField& field = sample_.fields[count_++];
  if (field.name != name) field.name = name;
  return field;
}

void SampleBuilder::AddBytes(std::string_view name, ByteView value, FieldKind kind) {
  SampleField& field = Next(name);
  field.value = std::move(value);
  field.kind = kind;
  field.dtype = DType::kUInt8;
  field.shape.clear();
}

Status SampleBuilder::AddArray(std::string_view name, NumberType type,
                               std::span<const std::int64_t> shape, ByteView value) {
  SampleField& field = Next(name);
  field.kind = FieldKind::kArray;
  field.dtype = type.dtype;
  field.shape.assign(shape.begin(), shape.end());
  const int size = SizeOf(type.dtype);
  field.value = type.is_big_endian && size > 1 ? Swapped(value, size) : std::move(value);
  if (type.is_uint64 && !FitsInt64(field.value.bytes())) {
    return InvalidArgumentError("field \"", name,
                                "\" has a uint64 of 2^63 or more, which int64 cannot hold");
  }
  return OkStatus();
}

void SampleBuilder::AddInteger(std::string_view name, std::int64_t value) {
  SampleField& field = Next(name);
  field.kind = FieldKind::kArray;
  field.dtype = DType::kInt64;
  field.shape.clear();
  field.value = ByteView::Copy(std::as_bytes(std::span(&value, 1)));
}

}  // namespace internal
}  // namespace ait::inline v0

// SPDX-License-Identifier: Apache-2.0
// prefix.idx, all numbers little-endian and unaligned:
//   9 bytes "MMIDIDX\0\0" | u64 version 1 | u8 dtype | u64 S sequences | u64 D document borders |
//   i32 length[S], in tokens | i64 pointer[S], in bytes of prefix.bin | i64 document[D], in
//   sequences
// A multimodal file has i8 mode[S] after that. prefix.bin holds the tokens and nothing else.
#include "data/megatron_index_internal.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>

#include "data/little_endian_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

constexpr std::array<char, 9> kMagic = {'M', 'M', 'I', 'D', 'I', 'D', 'X', '\0', '\0'};
constexpr std::int64_t kHeaderBytes = 34;
constexpr std::int64_t kChunk = 1 << 14;  // entries read at a time: an index may be large

std::optional<DType> DTypeOfCode(std::uint8_t code) {
  switch (code) {
    case 1:
      return DType::kUInt8;
    case 3:
      return DType::kInt16;
    case 4:
      return DType::kInt32;
    case 5:
      return DType::kInt64;
    case 8:
      return DType::kUInt16;
    default:  // 2 int8, 6 float64, 7 float32: not tokens
      return std::nullopt;
  }
}

StatusOr<MegatronIndex> ReadHeader(const MegatronIndexFile& file) {
  std::array<std::byte, kHeaderBytes> header;
  if (file.size_bytes < kHeaderBytes) {
    return DataLossError("truncated: it has ", file.size_bytes, " bytes, its header alone has ",
                         kHeaderBytes);
  }
  AIT_RETURN_IF_ERROR(file.read(0, header));
  if (std::memcmp(header.data(), kMagic.data(), kMagic.size()) != 0) {
    return InvalidArgumentError("it does not begin with \"MMIDIDX\"");
  }
  const auto version = LoadLittleEndian<std::uint64_t>(header, 9);
  if (version != 1) return UnimplementedError("version ", version, " is not known, only 1");
  const auto code = LoadLittleEndian<std::uint8_t>(header, 17);
  const std::optional<DType> dtype = DTypeOfCode(code);
  if (!dtype) return UnimplementedError("dtype code ", code, " is not one of tokens");
  const auto sequences = LoadLittleEndian<std::uint64_t>(header, 18);
  const auto borders = LoadLittleEndian<std::uint64_t>(header, 26);
  const auto body_bytes = static_cast<std::uint64_t>(file.size_bytes - kHeaderBytes);
  // Divisions first: the products of hostile counts could wrap around.
  const bool fits = sequences <= body_bytes / 12 && borders <= body_bytes / 8;
  const std::uint64_t stated_bytes = fits ? sequences * 12 + borders * 8 : 0;
  if (fits && sequences > 0 && body_bytes == stated_bytes + sequences) {
    return UnimplementedError("it has a mode for each sequence: multimodal files are not read");
  }
  if (!fits || body_bytes != stated_bytes) {
    return DataLossError("truncated or too long: ", sequences, " sequences and ", borders,
                         " document borders do not take ", body_bytes, " bytes");
  }
  return MegatronIndex{.dtype = *dtype,
                       .sequences = static_cast<std::int64_t>(sequences),
                       .borders = static_cast<std::int64_t>(borders)};
}

// Adds up the lengths and checks that each pointer is where the sequence before it ends.
StatusOr<std::int64_t> CountTokens(const MegatronIndexFile& file, const MegatronIndex& index,
                                   std::vector<std::int64_t>* begins) {
  std::vector<std::byte> lengths(kChunk * 4);
  std::vector<std::byte> pointers(kChunk * 8);
  std::int64_t tokens = 0;
  for (std::int64_t first = 0; first < index.sequences; first += kChunk) {
    const std::int64_t count = std::min(kChunk, index.sequences - first);
    AIT_RETURN_IF_ERROR(file.read(kHeaderBytes + first * 4,
                                  std::span(lengths).first(static_cast<std::size_t>(count * 4))));
    AIT_RETURN_IF_ERROR(file.read(kHeaderBytes + index.sequences * 4 + first * 8,
                                  std::span(pointers).first(static_cast<std::size_t>(count * 8))));
    for (std::int64_t i = 0; i < count; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const auto length = LoadLittleEndian<std::int32_t>(lengths, at * 4);
      const auto pointer = LoadLittleEndian<std::int64_t>(pointers, at * 8);
      if (length < 0) return DataLossError("sequence ", first + i, " has the length ", length);
      if (pointer != tokens * SizeOf(index.dtype)) {
        return DataLossError("sequence ", first + i, " begins at byte ", pointer,
                             ", but those before it end at ", tokens * SizeOf(index.dtype));
      }
      if (begins != nullptr) begins->push_back(tokens);
      tokens += length;
    }
  }
  if (begins != nullptr) begins->push_back(tokens);
  return tokens;
}

Status CheckDocuments(const MegatronIndexFile& file, const MegatronIndex& index,
                      const std::vector<std::int64_t>& sequence_begins,
                      std::vector<std::int64_t>* document_begins) {
  std::vector<std::byte> borders(kChunk * 8);
  std::int64_t previous = 0;
  for (std::int64_t first = 0; first < index.borders; first += kChunk) {
    const std::int64_t count = std::min(kChunk, index.borders - first);
    AIT_RETURN_IF_ERROR(file.read(kHeaderBytes + index.sequences * 12 + first * 8,
                                  std::span(borders).first(static_cast<std::size_t>(count * 8))));
    for (std::int64_t i = 0; i < count; ++i) {
      const auto border = LoadLittleEndian<std::int64_t>(borders, static_cast<std::size_t>(i) * 8);
      if (border < previous || border > index.sequences || (first + i == 0 && border != 0)) {
        return DataLossError("document border ", first + i, " is ", border,
                             ", not between the one before it and the ", index.sequences,
                             " sequences");
      }
      previous = border;
      if (document_begins != nullptr) {
        document_begins->push_back(sequence_begins[static_cast<std::size_t>(border)]);
      }
    }
  }
  if (index.borders == 0 || previous != index.sequences) {
    return DataLossError("the documents end at sequence ", previous, " of ", index.sequences);
  }
  return OkStatus();
}

}  // namespace

StatusOr<MegatronIndex> ReadMegatronIndex(const MegatronIndexFile& file,
                                          std::vector<std::int64_t>* document_begins) {
  AIT_ASSIGN_OR_RETURN(MegatronIndex index, ReadHeader(file));
  std::vector<std::int64_t> sequence_begins;
  AIT_ASSIGN_OR_RETURN(
      index.tokens,
      CountTokens(file, index, document_begins == nullptr ? nullptr : &sequence_begins));
  AIT_RETURN_IF_ERROR(CheckDocuments(file, index, sequence_begins, document_begins));
  return index;
}

}  // namespace internal
}  // namespace ait::inline v0

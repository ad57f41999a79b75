// SPDX-License-Identifier: Apache-2.0
#include "ait/data/token_file.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "ait/data/crc32c.h"
#include "data/little_endian_internal.h"

namespace ait::inline v0 {
namespace {

using internal::LoadLittleEndian;
using internal::StoreLittleEndian;

constexpr std::string_view kMagic = "AITTOKEN";
constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kHeaderCrcOffset = kTokenFileHeaderBytes - 4;

Status CheckDTypeAndVocabulary(DType dtype, std::int64_t vocabulary_size) {
  if (dtype != DType::kUInt8 && dtype != DType::kUInt16 && dtype != DType::kUInt32) {
    return InvalidArgumentError("dtype ", static_cast<int>(dtype),
                                " is not one of a token file: uint8, uint16 or uint32");
  }
  const std::int64_t most = std::int64_t{1} << (8 * SizeOf(dtype));
  if (vocabulary_size < 1 || vocabulary_size > most) {
    return InvalidArgumentError("vocabulary size ", vocabulary_size, " is not between 1 and ", most,
                                ", what ", Name(dtype), " can hold");
  }
  return OkStatus();
}

template <typename T>
void Narrow(std::span<const std::uint32_t> tokens, std::vector<std::byte>& out) {
  out.resize(tokens.size() * sizeof(T));
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    StoreLittleEndian<T>(out, i * sizeof(T), static_cast<T>(tokens[i]));
  }
}

}  // namespace

std::array<std::byte, kTokenFileHeaderBytes> Encode(const TokenFileHeader& header) {
  std::array<std::byte, kTokenFileHeaderBytes> bytes{};
  std::memcpy(bytes.data(), kMagic.data(), kMagic.size());
  StoreLittleEndian<std::uint32_t>(bytes, 8, kVersion);
  StoreLittleEndian<std::uint8_t>(bytes, 12, static_cast<std::uint8_t>(header.dtype));
  StoreLittleEndian<std::int64_t>(bytes, 16, header.vocabulary_size);
  StoreLittleEndian<std::int64_t>(bytes, 24, header.token_count);
  StoreLittleEndian<std::uint32_t>(bytes, 32, header.crc32c);
  StoreLittleEndian<std::uint32_t>(bytes, kHeaderCrcOffset,
                                   Crc32c(std::span(bytes).first(kHeaderCrcOffset)));
  return bytes;
}

StatusOr<TokenFileHeader> DecodeTokenFileHeader(
    std::span<const std::byte, kTokenFileHeaderBytes> bytes) {
  if (std::memcmp(bytes.data(), kMagic.data(), kMagic.size()) != 0) {
    return DataLossError("the file does not begin with \"", kMagic, "\"");
  }
  const std::uint32_t stored = LoadLittleEndian<std::uint32_t>(bytes, kHeaderCrcOffset);
  const std::uint32_t computed = Crc32c(bytes.first(kHeaderCrcOffset));
  if (stored != computed) {
    return DataLossError("the header is damaged: its checksum is ", computed, ", stored is ",
                         stored);
  }
  const auto version = LoadLittleEndian<std::uint32_t>(bytes, 8);
  if (version != kVersion) {
    return UnimplementedError("token file version ", version, " is not known, only ", kVersion);
  }
  const auto is_zero = [](std::byte byte) { return byte == std::byte{0}; };
  if (!std::ranges::all_of(bytes.subspan(13, 3), is_zero) ||
      !std::ranges::all_of(bytes.subspan(36, 24), is_zero)) {
    return InvalidArgumentError("reserved bytes of the header are not zero");
  }
  TokenFileHeader header = {
      .dtype = static_cast<DType>(LoadLittleEndian<std::uint8_t>(bytes, 12)),
      .vocabulary_size = LoadLittleEndian<std::int64_t>(bytes, 16),
      .token_count = LoadLittleEndian<std::int64_t>(bytes, 24),
      .crc32c = LoadLittleEndian<std::uint32_t>(bytes, 32),
  };
  AIT_RETURN_IF_ERROR(CheckDTypeAndVocabulary(header.dtype, header.vocabulary_size));
  if (header.token_count < 0) {
    return InvalidArgumentError("the token count ", header.token_count, " is negative");
  }
  return header;
}

StatusOr<TokenFileWriter> TokenFileWriter::Create(const std::string& path,
                                                  TokenFileWriterOptions options) {
  if (Status status = CheckDTypeAndVocabulary(options.dtype, options.vocabulary_size);
      !status.ok()) {
    return Annotate(status, StrCat("token file ", path));
  }
  AIT_ASSIGN_OR_RETURN(DurableFile file, DurableFile::Create(path));
  // Room for the header, which is known only at the end.
  AIT_RETURN_IF_ERROR(file.Append(std::array<std::byte, kTokenFileHeaderBytes>{}));
  return TokenFileWriter(std::move(file), {options.dtype, options.vocabulary_size});
}

TokenFileWriter::TokenFileWriter(DurableFile file, TokenFileHeader header)
    : file_(std::move(file)), header_(header) {}

Status TokenFileWriter::Append(std::span<const std::uint32_t> tokens) {
  constexpr std::size_t kChunk = 1 << 16;
  const auto bad = std::ranges::find_if(
      tokens, [&](std::uint32_t token) { return token >= header_.vocabulary_size; });
  if (bad != tokens.end()) {
    return InvalidArgumentError("token ", *bad, " at position ",
                                header_.token_count + (bad - tokens.begin()), " of ", file_.path(),
                                " is not in the vocabulary of ", header_.vocabulary_size);
  }
  while (!tokens.empty()) {
    const auto chunk = tokens.first(std::min(tokens.size(), kChunk));
    if (header_.dtype == DType::kUInt8) {
      Narrow<std::uint8_t>(chunk, narrow_);
    } else if (header_.dtype == DType::kUInt16) {
      Narrow<std::uint16_t>(chunk, narrow_);
    } else {
      Narrow<std::uint32_t>(chunk, narrow_);
    }
    AIT_RETURN_IF_ERROR(file_.Append(narrow_));
    header_.crc32c = Crc32c(narrow_, header_.crc32c);
    header_.token_count += static_cast<std::int64_t>(chunk.size());
    tokens = tokens.subspan(chunk.size());
  }
  return OkStatus();
}

StatusOr<TokenFileHeader> TokenFileWriter::Commit() {
  AIT_RETURN_IF_ERROR(file_.Overwrite(0, Encode(header_)));
  AIT_RETURN_IF_ERROR(file_.Commit());
  return header_;
}

}  // namespace ait::inline v0

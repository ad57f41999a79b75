// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <utility>

#include "data/formats_internal.h"
#include "data/little_endian_internal.h"
#include "data/mix_internal.h"

namespace ait::inline v0 {
namespace internal {
namespace {

struct Variant {
  std::int32_t magic;
  std::int32_t version;
  DType dtype;
  std::int64_t end_of_text;  // of the vocabulary that goes with it: GPT-2's, Llama 3's
};
constexpr Variant kVariants[] = {{20240520, 1, DType::kUInt16, 50256},
                                 {20240801, 7, DType::kUInt32, 128000}};

}  // namespace

bool IsLlmcMagic(std::int32_t magic) {
  return std::ranges::any_of(kVariants, [&](const Variant& v) { return v.magic == magic; });
}

StatusOr<std::uint64_t> DigestOfEnds(const TokenArray& tokens, std::int64_t offset_bytes) {
  const std::int64_t bytes = tokens.count() * SizeOf(tokens.dtype());
  const std::int64_t end = std::min(bytes, std::int64_t{1} << 20);
  AIT_ASSIGN_OR_RETURN(const std::uint32_t head, Crc32cOfFile(tokens.file(), offset_bytes, end));
  AIT_ASSIGN_OR_RETURN(const std::uint32_t tail,
                       Crc32cOfFile(tokens.file(), offset_bytes + bytes - end, end));
  return Fold(Fold(DigestOf(tokens.count(), head), tail), static_cast<std::uint64_t>(bytes));
}

StatusOr<LlmcHeader> ParseLlmcHeader(std::span<const std::byte> header, std::int64_t file_bytes) {
  if (file_bytes < kLlmcHeaderBytes || header.size() < 12) {
    return DataLossError("it is truncated: it has ", file_bytes, " bytes, its header alone has ",
                         kLlmcHeaderBytes);
  }
  const auto magic = LoadLittleEndian<std::int32_t>(header, 0);
  const auto version = LoadLittleEndian<std::int32_t>(header, 4);
  const auto count = LoadLittleEndian<std::int32_t>(header, 8);
  const auto variant =
      std::ranges::find_if(kVariants, [&](const Variant& v) { return v.magic == magic; });
  if (variant == std::end(kVariants)) return InvalidArgumentError("magic ", magic, " is not known");
  if (version != variant->version) {
    return UnimplementedError("version ", version, " of magic ", magic, " is not known, only ",
                              variant->version);
  }
  const std::int64_t payload_bytes = file_bytes - kLlmcHeaderBytes;
  const int token_bytes = SizeOf(variant->dtype);
  if (count < 0 || payload_bytes != std::int64_t{count} * token_bytes) {
    return DataLossError("it is truncated or too long: its header states ", count, " tokens of ",
                         token_bytes, " bytes, it holds ", payload_bytes, " bytes of tokens");
  }
  return LlmcHeader{
      .dtype = variant->dtype, .token_count = count, .end_of_text = variant->end_of_text};
}

StatusOr<TokenStream> OpenLlmc(const std::string& path) {
  AIT_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  std::array<std::byte, 12> start = {};
  if (file.size_bytes() >= kLlmcHeaderBytes) AIT_RETURN_IF_ERROR(file.ReadAt(0, start));
  const StatusOr<LlmcHeader> header = ParseLlmcHeader(start, file.size_bytes());
  if (!header.ok()) return Annotate(header.status(), StrCat("llm.c file ", path));
  TokenStream stream;
  stream.arrays.emplace_back(std::move(file), kLlmcHeaderBytes, header->token_count, header->dtype);
  AIT_ASSIGN_OR_RETURN(stream.digest, DigestOfEnds(stream.arrays.front(), kLlmcHeaderBytes));
  return stream;
}

}  // namespace internal
}  // namespace ait::inline v0

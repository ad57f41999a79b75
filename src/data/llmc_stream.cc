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

constexpr std::int64_t kHeaderBytes = 256 * 4;

struct Variant {
  std::int32_t magic;
  std::int32_t version;
  DType dtype;
};
constexpr Variant kVariants[] = {{20240520, 1, DType::kUInt16}, {20240801, 7, DType::kUInt32}};

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

StatusOr<TokenStream> OpenLlmc(const std::string& path) {
  AIT_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  if (file.size_bytes() < kHeaderBytes) {
    return DataLossError("llm.c file ", path, " is truncated: it has ", file.size_bytes(),
                         " bytes, its header alone has ", kHeaderBytes);
  }
  std::array<std::byte, 12> header;
  AIT_RETURN_IF_ERROR(file.ReadAt(0, header));
  const auto magic = LoadLittleEndian<std::int32_t>(header, 0);
  const auto version = LoadLittleEndian<std::int32_t>(header, 4);
  const auto count = LoadLittleEndian<std::int32_t>(header, 8);
  const auto variant =
      std::ranges::find_if(kVariants, [&](const Variant& v) { return v.magic == magic; });
  if (variant == std::end(kVariants)) {
    return InvalidArgumentError("llm.c file ", path, ": magic ", magic, " is not known");
  }
  if (version != variant->version) {
    return UnimplementedError("llm.c file ", path, ": version ", version, " of magic ", magic,
                              " is not known, only ", variant->version);
  }
  const std::int64_t payload_bytes = file.size_bytes() - kHeaderBytes;
  const int token_bytes = SizeOf(variant->dtype);
  if (count < 0 || payload_bytes != std::int64_t{count} * token_bytes) {
    return DataLossError("llm.c file ", path, " is truncated or too long: its header states ",
                         count, " tokens of ", token_bytes, " bytes, it holds ", payload_bytes,
                         " bytes of tokens");
  }
  TokenStream stream;
  stream.arrays.emplace_back(std::move(file), kHeaderBytes, count, variant->dtype);
  AIT_ASSIGN_OR_RETURN(stream.digest, DigestOfEnds(stream.arrays.front(), kHeaderBytes));
  return stream;
}

}  // namespace internal
}  // namespace ait::inline v0

// SPDX-License-Identifier: Apache-2.0
// Reads the formats of ait itself: one token file, and the shards of a packed corpus.
#include <array>
#include <utility>

#include "data/formats_internal.h"
#include "data/json_internal.h"
#include "data/mix_internal.h"

namespace ait::inline v0 {
namespace internal {

std::uint64_t DigestOf(std::int64_t token_count, std::uint32_t crc32c) {
  return Fold(Fold(0, static_cast<std::uint64_t>(token_count)), crc32c);
}

StatusOr<OpenedTokenFile> OpenTokenFile(const std::string& path, Verification verification) {
  AIT_ASSIGN_OR_RETURN(InputFile file, InputFile::Open(path));
  if (file.size_bytes() < kTokenFileHeaderBytes) {
    return DataLossError("token file ", path, " is truncated: it has ", file.size_bytes(),
                         " bytes, its header alone has ", kTokenFileHeaderBytes);
  }
  std::array<std::byte, kTokenFileHeaderBytes> bytes;
  AIT_RETURN_IF_ERROR(file.ReadAt(0, bytes));
  const StatusOr<TokenFileHeader> header = DecodeTokenFileHeader(bytes);
  if (!header.ok()) return Annotate(header.status(), StrCat("token file ", path));
  const std::int64_t payload_bytes = file.size_bytes() - kTokenFileHeaderBytes;
  const int token_bytes = SizeOf(header->dtype);
  if (payload_bytes % token_bytes != 0 || payload_bytes / token_bytes != header->token_count) {
    return DataLossError("token file ", path, " is truncated or too long: its header states ",
                         header->token_count, " tokens of ", token_bytes, " bytes, it holds ",
                         payload_bytes, " bytes of tokens; pack the corpus again");
  }
  TokenArray tokens(std::move(file), kTokenFileHeaderBytes, header->token_count, header->dtype);
  if (verification == Verification::kContents) {
    AIT_ASSIGN_OR_RETURN(const std::uint32_t crc, tokens.Crc32c());
    if (crc != header->crc32c) {
      return DataLossError("token file ", path, " is damaged: the checksum of its tokens is ",
                           HexDigits(crc, 8), ", its header states ", HexDigits(header->crc32c, 8),
                           "; pack the corpus again");
    }
  }
  return OpenedTokenFile{*header, std::move(tokens)};
}

StatusOr<TokenStream> OpenTokenFileStream(const std::string& path, Verification verification) {
  AIT_ASSIGN_OR_RETURN(OpenedTokenFile file, OpenTokenFile(path, verification));
  TokenStream stream;
  stream.vocabulary_size = file.header.vocabulary_size;
  stream.digest = DigestOf(file.header.token_count, file.header.crc32c);
  stream.arrays.push_back(std::move(file.tokens));
  return stream;
}

StatusOr<TokenStream> OpenShards(const std::string& directory, const Manifest& manifest,
                                 Verification verification) {
  if (manifest.shards.empty())
    return DataLossError(directory, "/", kManifestName, " lists no shards");
  TokenStream stream;
  stream.vocabulary_size = manifest.vocabulary_size;
  stream.digest = DigestOf(manifest.tokens, manifest.crc32c);
  for (const Manifest::Shard& shard : manifest.shards) {
    const std::string path = StrCat(directory, "/", shard.file);
    AIT_ASSIGN_OR_RETURN(OpenedTokenFile file, OpenTokenFile(path, verification));
    const TokenFileHeader stated = {.dtype = manifest.dtype,
                                    .vocabulary_size = manifest.vocabulary_size,
                                    .token_count = shard.tokens,
                                    .crc32c = shard.crc32c};
    if (file.header != stated) {
      return DataLossError("token file ", path, " is not the one that ", kManifestName,
                           " lists: tokens, vocabulary, dtype or checksum differ; pack the corpus ",
                           "again");
    }
    stream.arrays.push_back(std::move(file.tokens));
  }
  return stream;
}

}  // namespace internal
}  // namespace ait::inline v0

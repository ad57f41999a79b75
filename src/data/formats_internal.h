// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_FORMATS_INTERNAL_H_
#define AIT_DATA_FORMATS_INTERNAL_H_

// The formats of token files: each opener checks a corpus and gives its tokens as arrays in order.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ait/data/token_file.h"
#include "ait/data/token_source.h"
#include "data/manifest_internal.h"
#include "data/token_array_internal.h"

namespace ait::inline v0 {
namespace internal {

struct TokenStream {
  std::vector<TokenArray> arrays;    // one after the other
  std::int64_t vocabulary_size = 0;  // 0 if the format does not state it
  std::uint64_t digest = 0;
};

struct OpenedTokenFile {
  TokenFileHeader header;
  TokenArray tokens;
};

/// One token file of ait ("ait/data/token_file.h"), checked.
StatusOr<OpenedTokenFile> OpenTokenFile(const std::string& path, Verification verification);

/// The same as a stream of its own.
StatusOr<TokenStream> OpenTokenFileStream(const std::string& path, Verification verification);

/// The shards that `manifest` of `directory` lists; each must be as the manifest says.
StatusOr<TokenStream> OpenShards(const std::string& directory, const Manifest& manifest,
                                 Verification verification);

/// A .bin of llm.c: 256 int32 (magic, version, token count, zeros), then the tokens.
/// Source: github.com/karpathy/llm.c, dev/data/data_common.py.
StatusOr<TokenStream> OpenLlmc(const std::string& path);
/// True for the first int32 of such a file.
bool IsLlmcMagic(std::int32_t magic);

inline constexpr std::int64_t kLlmcHeaderBytes = 256 * 4;
struct LlmcHeader {
  DType dtype = DType::kUInt16;
  std::int64_t token_count = 0;
  std::int64_t end_of_text = 0;  // the token that begins every document
};
/// Checks the first 12 bytes against the size of the file; errors do not name it.
StatusOr<LlmcHeader> ParseLlmcHeader(std::span<const std::byte> header, std::int64_t file_bytes);

/// `prefix`.idx and `prefix`.bin of Megatron.
/// Source: github.com/NVIDIA/Megatron-LM, megatron/core/datasets/indexed_dataset.py.
StatusOr<TokenStream> OpenMegatron(const std::string& prefix);

/// Identity of tokens that carry no checksum of their own: their number and those at both ends.
StatusOr<std::uint64_t> DigestOfEnds(const TokenArray& tokens, std::int64_t offset_bytes);

/// Identity of tokens with a checksum over all of them.
std::uint64_t DigestOf(std::int64_t token_count, std::uint32_t crc32c);

}  // namespace internal
}  // namespace ait::inline v0

#endif  // AIT_DATA_FORMATS_INTERNAL_H_

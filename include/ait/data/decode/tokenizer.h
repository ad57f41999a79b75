// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_DATA_DECODE_TOKENIZER_H_
#define AIT_DATA_DECODE_TOKENIZER_H_

// Text to tokens and back: bytes, or byte-level BPE from the files that models are published with.
//
// Equal, token for token, to the programs those files come from: a `tokenizer.json` of Hugging Face
// tokenizers (GPT-2, Llama 3, Qwen and others of the byte-level kind) or a file of ranks of
// tiktoken. What a file asks for and this does not do (another model, normalizer or pattern) is
// refused when it is opened, by name; nothing is silently different.
//
//   AIT_ASSIGN_OR_RETURN(auto tokenizer, Tokenizer::OpenJson("llama-3/tokenizer.json"));
//   std::vector<std::int32_t> ids;
//   AIT_RETURN_IF_ERROR(tokenizer->Encode("Hello world", ids));
//   AIT_ASSIGN_OR_RETURN(std::string text, tokenizer->Decode(ids));
//
// **Thread-safety.** All members may be called by several threads at the same time. Words that come
// often are remembered, within 1 MiB for each thread that encodes at the same time.

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "ait/base/status.h"

namespace ait::inline v0 {

/// What "<|endoftext|>" in a text is.
enum class SpecialTokens : std::uint8_t {
  kAsText,  // characters as any other: text from elsewhere cannot forge the marks of documents
  kParse,   // the token of that name
};

/// Whether the marks of a tokenizer.json's post-processor (such as the begin of text) are added.
enum class TemplateTokens : std::uint8_t { kOmit, kAdd };

struct EncodeOptions {
  SpecialTokens special = SpecialTokens::kAsText;
  TemplateTokens template_tokens = TemplateTokens::kOmit;
};

/// What a file of ranks does not say.
struct TiktokenOptions {
  /// How text is cut before it is encoded: "gpt2", "cl100k_base" or "o200k_base" for the pattern of
  /// that encoding, "llama3" or "qwen2", or one of their regular expressions itself.
  std::string pattern = "cl100k_base";
  std::vector<std::pair<std::string, std::int32_t>> special_tokens = {};
};

class Tokenizer {
 public:
  using Ptr = std::shared_ptr<const Tokenizer>;

  /// Every byte is a token of its value: 0 … 255.
  static Ptr Bytes();
  /// **Errors.** InvalidArgument if it is no such file; Unimplemented, with the name of what it is,
  /// if it asks for something that is not done here.
  static StatusOr<Ptr> FromJson(std::string_view json);
  static StatusOr<Ptr> FromTiktoken(std::string_view ranks, const TiktokenOptions& options = {});
  /// The same from files. **Blocks.** **Errors.** Also those of reading.
  static StatusOr<Ptr> OpenJson(const std::string& path);
  static StatusOr<Ptr> OpenTiktoken(const std::string& path, const TiktokenOptions& options = {});

  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  /// One more than the greatest token.
  std::int32_t vocabulary_size() const;
  /// The token of that name: of a special token its text, of any other its bytes.
  std::optional<std::int32_t> IdOf(std::string_view token) const;

  /// Appends the tokens of `text`. **Errors.** InvalidArgument if `text` is not UTF-8 (bytes may be
  /// anything), with the offset of the first bad byte; nothing is appended then.
  Status Encode(std::string_view text, std::vector<std::int32_t>& ids,
                const EncodeOptions& options = {}) const;

  /// The bytes of the tokens one after the other: the text again, but for what a normalizer
  /// changed. Special tokens are their names (kAsText) or left out (kParse). A part of a text may
  /// end within a character. **Errors.** InvalidArgument if an id is no token.
  StatusOr<std::string> Decode(std::span<const std::int32_t> ids,
                               SpecialTokens special = SpecialTokens::kAsText) const;

 private:
  struct Impl;
  explicit Tokenizer(std::unique_ptr<Impl> impl);
  friend struct TokenizerParts;

  std::unique_ptr<Impl> impl_;
};

}  // namespace ait::inline v0

#endif  // AIT_DATA_DECODE_TOKENIZER_H_

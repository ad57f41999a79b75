// SPDX-License-Identifier: Apache-2.0
// Ranks of tiktoken and the texts that are encoded with them: the tokens are the text again.
#include "ait/data/decode/tokenizer.h"
#include "fuzz/fuzz.h"

namespace ait::testing {
namespace {

std::string Base64(std::string_view bytes) {
  constexpr char kDigits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    unsigned bits = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      bits = bits << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      text += k <= bytes.size() - i ? kDigits[bits >> (18 - 6 * k) & 63] : '=';
    }
  }
  return text;
}

const std::string& Ranks() {
  static const std::string ranks = [] {
    std::string lines;
    int rank = 0;
    for (; rank < 256; ++rank) {
      const char byte = static_cast<char>(rank);
      lines += Base64({&byte, 1}) + " " + std::to_string(rank) + "\n";
    }
    for (const char* token :
         {"ab", "abc", "the", "th", " a", "  ", "\r\n", "\xc3\xa9", "aa", "aaaa"}) {
      lines += Base64(token) + " " + std::to_string(rank++) + "\n";
    }
    return lines;
  }();
  return ranks;
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  return {Ranks(), "abc the 123 é\r\n  ab's", "x\xcc\x81 HTTPServer'LL 1234//\n"};
}

}  // namespace ait::testing

namespace ait {
namespace {

void CheckText(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<std::int32_t> ids;
  const Status status = tokenizer.Encode(text, ids, {.special = SpecialTokens::kParse});
  if (!status.ok()) return;
  const auto back = tokenizer.Decode(ids);
  AIT_FUZZ_CHECK(back.ok() && *back == text);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view input = testing::Text(data, size);
  const auto own = Tokenizer::FromTiktoken(input);
  if (own.ok()) CheckText(**own, "abc the 123\n");
  static const auto kTokenizers = [] {
    std::vector<Tokenizer::Ptr> tokenizers;
    for (const char* pattern : {"gpt2", "cl100k_base", "o200k_base", "qwen2"}) {
      tokenizers.push_back(*Tokenizer::FromTiktoken(
          testing::Ranks(), {.pattern = pattern, .special_tokens = {{"<s>", 300}}}));
    }
    return tokenizers;
  }();
  for (const Tokenizer::Ptr& tokenizer : kTokenizers) CheckText(*tokenizer, input);
  return 0;
}

}  // namespace ait

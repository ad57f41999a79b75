// SPDX-License-Identifier: Apache-2.0
// tokenizer.json: any text gives a status or a tokenizer, whose tokens are the text again.
#include "ait/data/decode/tokenizer.h"
#include "fuzz/fuzz.h"

namespace ait::testing {
namespace {

/// The character of a byte in the alphabet of byte-level BPE, as JSON.
void AppendEscaped(int byte, int& next, std::string& to) {
  const bool is_printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
  const int code = is_printable ? byte : next++;
  constexpr char kDigits[] = "0123456789abcdef";
  to += "\\u0";
  for (const int shift : {8, 4, 0}) to += kDigits[code >> shift & 15];
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  std::string vocabulary;
  int next = 256;
  for (int byte = 0; byte < 256; ++byte) {
    vocabulary += '"';
    AppendEscaped(byte, next, vocabulary);
    vocabulary += "\":";
    vocabulary += std::to_string(byte);
    vocabulary += ',';
  }
  const std::string model = R"("model":{"type":"BPE","ignore_merges":false,"vocab":{)" +
                            vocabulary + R"("ab":256,"abc":257},"merges":[["a","b"],"ab c"]})";
  const std::string byte_level = R"({"type":"ByteLevel","add_prefix_space":false,"use_regex":)";
  return {
      R"({"pre_tokenizer":)" + byte_level + "true}," + model + "}",
      R"({"normalizer":{"type":"NFC"},"added_tokens":[{"id":258,"content":"<s>","special":true}],)"
      R"("post_processor":{"type":"TemplateProcessing","single":[{"SpecialToken":{"id":"<s>"}},)"
      R"({"Sequence":{"id":"A"}}],"special_tokens":{"<s>":{"ids":[258]}}},)"
      R"("pre_tokenizer":)" +
          byte_level + "false}," + model + "}"};
}

}  // namespace ait::testing

namespace ait {

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto tokenizer = Tokenizer::FromJson(testing::Text(data, size));
  if (!tokenizer.ok()) return 0;
  std::vector<std::int32_t> ids;
  AIT_FUZZ_CHECK(
      (*tokenizer)
          ->Encode("abcab <s> x\n", ids,
                   {.special = SpecialTokens::kParse, .template_tokens = TemplateTokens::kAdd})
          .ok());
  (*tokenizer)->Decode(ids).IgnoreError();
  return 0;
}

}  // namespace ait

// SPDX-License-Identifier: Apache-2.0
#include "ait/data/decode/tokenizer.h"

#include <gtest/gtest.h>

#include <sstream>
#include <thread>

#include "data/decode/decode_test_support.h"
#include "data/decode/unicode_internal.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using testing::AsText;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::StatusIs;
using testing::TestFile;
using Ids = std::vector<std::int32_t>;

std::string FromHex(const std::string& hex) {
  std::string bytes;
  if (hex == "-") return bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::string File(const std::string& name) { return AsText(TestFile("tokenizers/" + name)); }

std::vector<std::string> Texts() {
  std::vector<std::string> texts;
  std::istringstream lines(File("texts.txt"));
  for (std::string line; std::getline(lines, line);) texts.push_back(FromHex(line));
  return texts;
}

StatusOr<Tokenizer::Ptr> Tiktoken(const std::string& name, const std::string& pattern) {
  return Tokenizer::OpenTiktoken(
      std::string(AIT_DECODE_TESTDATA) + "/tokenizers/" + name + ".tiktoken",
      {.pattern = pattern, .special_tokens = {{"<|endoftext|>", 2000}, {"<|end|>", 2001}}});
}

/// Compares with every line of tokenizers/`name`.txt; ids of special tokens are `special` there.
void ExpectReference(const Tokenizer& tokenizer, const std::string& name) {
  const std::vector<std::string> texts = Texts();
  std::istringstream lines(File(name + ".txt"));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    std::istringstream words(line);
    std::size_t number = 0;
    std::string mode;
    words >> number >> mode;
    Ids expected;
    for (std::int32_t id; words >> id;) expected.push_back(id);
    EncodeOptions options;
    if (mode != "plain") options.special = SpecialTokens::kParse;
    if (mode == "template") options.template_tokens = TemplateTokens::kAdd;
    Ids ids;
    ASSERT_OK(tokenizer.Encode(texts[number], ids, options));
    ASSERT_EQ(ids, expected) << name << ", text " << number << ", " << mode << ": "
                             << texts[number];
    if (mode != "plain" || name == "qwen2" || name == "gpt2_space") continue;
    ASSERT_OK_AND_ASSIGN(const std::string text, tokenizer.Decode(ids));
    ASSERT_EQ(text, texts[number]);
  }
  EXPECT_GT(count, 250);
}

TEST(TokenizerTest, TokensAreThoseOfHuggingFace) {
  for (const std::string name : {"gpt2", "gpt2_space", "llama3", "qwen2"}) {
    ASSERT_OK_AND_ASSIGN(
        const Tokenizer::Ptr tokenizer,
        Tokenizer::OpenJson(std::string(AIT_DECODE_TESTDATA) + "/tokenizers/" + name + ".json"));
    ExpectReference(*tokenizer, name);
    ExpectReference(*tokenizer, name);  // once more, with all words remembered
  }
}

TEST(TokenizerTest, TokensAreThoseOfTiktoken) {
  for (const auto& [name, pattern] : {std::pair<std::string, std::string>{"r50k", "gpt2"},
                                      {"cl100k", "cl100k_base"},
                                      {"o200k", "o200k_base"}}) {
    const std::string ranks = File(name + ".tiktoken");
    const auto size = static_cast<std::int32_t>(std::count(ranks.begin(), ranks.end(), '\n'));
    ASSERT_OK_AND_ASSIGN(
        const Tokenizer::Ptr tokenizer,
        Tokenizer::FromTiktoken(
            ranks, {.pattern = pattern,
                    .special_tokens = {{"<|endoftext|>", size}, {"<|end|>", size + 1}}}));
    EXPECT_EQ(tokenizer->vocabulary_size(), size + 2);
    ExpectReference(*tokenizer, name);
    ExpectReference(*tokenizer, name);
  }
}

TEST(TokenizerTest, CompositionIsThatOfPython) {
  const internal::Composer composer;
  std::istringstream lines(File("nfc.txt"));
  int count = 0;
  for (std::string text, expected; lines >> text >> expected; ++count) {
    EXPECT_EQ(composer.Nfc(FromHex(text)), FromHex(expected)) << text;
  }
  EXPECT_EQ(count, 600);
}

TEST(TokenizerTest, BytesAreTokens) {
  const Tokenizer::Ptr bytes = Tokenizer::Bytes();
  Ids ids = {7};
  ASSERT_OK(bytes->Encode(std::string("a\xff\0", 3), ids));
  EXPECT_THAT(ids, ElementsAre(7, 'a', 255, 0));
  EXPECT_EQ(*bytes->Decode(ids), std::string("\x07"
                                             "a\xff\0",
                                             4));
  EXPECT_EQ(bytes->vocabulary_size(), 256);
  EXPECT_EQ(bytes->IdOf("\xfe"), 254);
  EXPECT_THAT(bytes->Decode(Ids{256}), StatusIs(StatusCode::kInvalidArgument));
}

TEST(TokenizerTest, LongPiecesMergeAsShortOnes) {
  ASSERT_OK_AND_ASSIGN(const Tokenizer::Ptr tokenizer, Tiktoken("cl100k", "cl100k_base"));
  // 300,000 letters without a blank are one piece; quadratic work would take minutes.
  std::string text;
  for (int i = 0; i < 50'000; ++i) text += "return";
  Ids ids;
  ASSERT_OK(tokenizer->Encode(text, ids));
  EXPECT_EQ(*tokenizer->Decode(ids), text);
  EXPECT_LT(ids.size(), text.size() / 2);
}

TEST(TokenizerTest, SpecialTokensAreTextUnlessAskedFor) {
  ASSERT_OK_AND_ASSIGN(const Tokenizer::Ptr tokenizer, Tiktoken("cl100k", "cl100k_base"));
  const std::string text = "a<|endoftext|>b";
  Ids as_text, parsed;
  ASSERT_OK(tokenizer->Encode(text, as_text));
  ASSERT_OK(tokenizer->Encode(text, parsed, {.special = SpecialTokens::kParse}));
  EXPECT_THAT(parsed, ElementsAre('a', 2000, 'b'));
  EXPECT_GT(as_text.size(), 3u);
  EXPECT_EQ(*tokenizer->Decode(parsed), text);
  EXPECT_EQ(*tokenizer->Decode(parsed, SpecialTokens::kParse), "ab");
  EXPECT_EQ(tokenizer->IdOf("<|endoftext|>"), 2000);
  EXPECT_EQ(tokenizer->IdOf("no such token"), std::nullopt);
  EXPECT_THAT(tokenizer->Decode(Ids{1999}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(tokenizer->Decode(Ids{-1}), StatusIs(StatusCode::kInvalidArgument));
}

TEST(TokenizerTest, TextThatIsNotUtf8IsABadSample) {
  ASSERT_OK_AND_ASSIGN(const Tokenizer::Ptr tokenizer, Tiktoken("cl100k", "cl100k_base"));
  for (const std::string bad :
       {"\xff", "\xc0\x80", "\xe0\x80\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xe4\xb8", "\x80",
        "\xf0\x80\x80\x80", "\xc3("}) {
    Ids ids = {1};
    EXPECT_THAT(tokenizer->Encode("good text " + bad, ids),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("at byte 10")));
    EXPECT_THAT(ids, ElementsAre(1));
  }
}

TEST(TokenizerTest, ThreadsGetTheSameTokens) {
  ASSERT_OK_AND_ASSIGN(const Tokenizer::Ptr tokenizer, Tiktoken("o200k", "o200k_base"));
  const std::vector<std::string> texts = Texts();
  const auto encode = [&] {
    Ids ids;
    for (const std::string& text : texts) EXPECT_OK(tokenizer->Encode(text, ids));
    return ids;
  };
  const Ids expected = encode();
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) threads.emplace_back([&] { EXPECT_EQ(encode(), expected); });
  for (std::thread& thread : threads) thread.join();
}

TEST(TokenizerTest, WhatIsNotDoneIsRefusedByName) {
  const std::string json = File("llama3.json");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = json;
    const std::size_t at = changed.find(from);
    EXPECT_NE(at, changed.npos) << from;
    return Tokenizer::FromJson(changed.replace(at, from.size(), to)).status();
  };
  const auto refuses = [](const std::string& name) {
    return StatusIs(StatusCode::kUnimplemented, HasSubstr(name));
  };
  EXPECT_THAT(with("\"normalizer\":null", R"("normalizer":{"type":"Lowercase"})"),
              refuses("Lowercase"));
  EXPECT_THAT(with("\"type\":\"BPE\"", "\"type\":\"Unigram\""), refuses("Unigram"));
  EXPECT_THAT(with("\"type\":\"Split\"", "\"type\":\"Whitespace\""), refuses("Whitespace"));
  EXPECT_THAT(with("\\\\p{N}{1,3}", "\\\\p{N}{1,4}"), refuses("known are those of gpt2"));
  EXPECT_THAT(with("\"lstrip\":false", "\"lstrip\":true"), refuses("lstrip"));
  EXPECT_THAT(with("\"truncation\":null", R"("truncation":{"max_length":4})"),
              refuses("truncation"));
  EXPECT_THAT(with("\"continuing_subword_prefix\":null", R"("continuing_subword_prefix":"##")"),
              refuses("continuing_subword_prefix"));
  EXPECT_THAT(with("\"type\":\"TemplateProcessing\"", "\"type\":\"BertProcessing\""),
              refuses("BertProcessing"));
  EXPECT_THAT(with("\"dropout\":null", "\"dropout\":0.1"), refuses("dropout"));
  EXPECT_THAT(Tokenizer::FromTiktoken(File("cl100k.tiktoken"), {.pattern = "\\w+"}),
              refuses("\\w+"));
}

TEST(TokenizerTest, DamagedFilesAreSaid) {
  const std::string json = File("gpt2.json");
  for (std::size_t size = 0; size < json.size() - 1; size += 37) {
    EXPECT_FALSE(Tokenizer::FromJson(json.substr(0, size)).ok());
  }
  EXPECT_THAT(Tokenizer::FromTiktoken("IQ== 0\nIQ==\n"),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("line 2")));
  EXPECT_THAT(Tokenizer::FromTiktoken("IQ== 0\nIg== 0\n"),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("rank 0")));
  EXPECT_THAT(Tokenizer::FromTiktoken("IQ== 99999999999\n"),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(Tokenizer::FromTiktoken("I Q 0\n"), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(Tokenizer::FromTiktoken("IQ== 0\n"),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("single byte 0")));
  EXPECT_THAT(Tokenizer::OpenJson("/nowhere/tokenizer.json"), StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(Tokenizer::FromTiktoken(File("cl100k.tiktoken"), {.special_tokens = {{"x", 0}}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("which a token of the file has")));
}

}  // namespace
}  // namespace ait

// SPDX-License-Identifier: Apache-2.0
#include "ait/data/token_source.h"

#include <gtest/gtest.h>

#include <chrono>
#include <limits>
#include <random>
#include <thread>

#include "ait/data/pack.h"
#include "data/data_test_support.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::LlmcBytes;
using ::ait::testing::MegatronIndexBytes;
using ::ait::testing::Put;
using ::ait::testing::ReadBytes;
using ::ait::testing::StatusIs;
using ::ait::testing::TempDir;
using ::ait::testing::WriteBytes;
using ::ait::testing::WriteCountingFile;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

StatusOr<std::vector<std::int64_t>> ReadAll(const TokenSource& source) {
  std::vector<std::int64_t> tokens(static_cast<std::size_t>(source.token_count()));
  AIT_RETURN_IF_ERROR(source.Read(0, tokens));
  return tokens;
}

template <typename T>
std::string BytesOfTokens(const std::vector<T>& tokens) {
  std::string bytes;
  for (T token : tokens) Put(bytes, token);
  return bytes;
}

TEST(OpenTokenSource, ReadsATokenFileFromAnywhere) {
  const TempDir directory;
  WriteCountingFile(directory / "a", 1000, {.vocabulary_size = 333});
  ASSERT_OK_AND_ASSIGN(auto source, OpenTokenSource(directory / "a"));
  EXPECT_EQ(source->token_count(), 1000);
  EXPECT_EQ(source->vocabulary_size(), 333);
  EXPECT_EQ(source->name(), directory / "a");
  std::vector<std::int64_t> tokens(10);
  ASSERT_OK(source->Read(990, tokens));
  EXPECT_EQ(tokens.front(), 990 % 333);
  ASSERT_OK(source->Read(1000, {}));
  EXPECT_THAT(source->Read(991, tokens), StatusIs(StatusCode::kOutOfRange, HasSubstr("1000")));
  EXPECT_THAT(source->Read(-1, tokens), StatusIs(StatusCode::kOutOfRange));
  EXPECT_THAT(source->Read(std::numeric_limits<std::int64_t>::max(), tokens),
              StatusIs(StatusCode::kOutOfRange));
}

TEST(OpenTokenSource, FindsEveryTruncationOfATokenFile) {
  const TempDir directory;
  WriteCountingFile(directory / "a", 100, {.vocabulary_size = 333});
  const std::string bytes = ReadBytes(directory / "a");
  for (std::size_t length = 8; length < bytes.size(); ++length) {
    WriteBytes(directory / "cut", bytes.substr(0, length));
    EXPECT_THAT(OpenTokenSource(directory / "cut", {.verification = Verification::kSizes}),
                StatusIs(StatusCode::kDataLoss, HasSubstr("truncated")))
        << length;
  }
  WriteBytes(directory / "cut", bytes + "x");
  EXPECT_THAT(OpenTokenSource(directory / "cut"), StatusIs(StatusCode::kDataLoss));
}

TEST(OpenTokenSource, FindsEveryFlippedByteOfATokenFile) {
  const TempDir directory;
  WriteCountingFile(directory / "a", 50, {.vocabulary_size = 333});
  const std::string bytes = ReadBytes(directory / "a");
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x20);
    WriteBytes(directory / "damaged", damaged);
    EXPECT_FALSE(OpenTokenSource(directory / "damaged").ok()) << at;
  }
  std::string damaged = bytes;
  damaged[80] = static_cast<char>(damaged[80] ^ 1);
  WriteBytes(directory / "damaged", damaged);
  EXPECT_THAT(OpenTokenSource(directory / "damaged"),
              StatusIs(StatusCode::kDataLoss, HasSubstr("checksum")));
  EXPECT_OK(OpenTokenSource(directory / "damaged", {.verification = Verification::kSizes}));
}

TEST(OpenTokenSource, NamesATokenThatIsNotInTheVocabularyWhenItIsRead) {
  const TempDir directory;
  WriteCountingFile(directory / "a", 50, {.vocabulary_size = 333});
  std::string bytes = ReadBytes(directory / "a");
  bytes[64 + 2 * 7 + 1] = 9;  // token 7 becomes 7 + 9 × 256
  WriteBytes(directory / "a", bytes);
  ASSERT_OK_AND_ASSIGN(auto source,
                       OpenTokenSource(directory / "a", {.verification = Verification::kSizes}));
  EXPECT_THAT(ReadAll(*source),
              StatusIs(StatusCode::kDataLoss, HasSubstr("token 2311 at position 7")));
}

TEST(OpenTokenSource, SurvivesAFileThatShrinksWhileItIsOpen) {
  const TempDir directory;
  WriteCountingFile(directory / "a", 5000, {.vocabulary_size = 333});
  ASSERT_OK_AND_ASSIGN(auto source, OpenTokenSource(directory / "a"));
  std::filesystem::resize_file(directory / "a", 1000);
  EXPECT_THAT(ReadAll(*source), StatusIs(StatusCode::kDataLoss, HasSubstr("ends at byte 1000")));
}

TEST(OpenTokenSource, ManyReadsGiveWhatSingleReadsGive) {
  const TempDir directory;
  WriteBytes(directory / "text", std::string(50'000, 'x') + "end");
  ASSERT_OK(
      PackText({directory / "text"}, {.directory = directory / "corpus", .shard_tokens = 7'001})
          .status());
  ASSERT_OK_AND_ASSIGN(auto source, OpenTokenSource(directory / "corpus"));
  ASSERT_OK_AND_ASSIGN(const auto all, ReadAll(*source));
  std::mt19937_64 random(4);
  for (const std::size_t count : {0, 1, 3, 100, 500}) {
    std::vector<std::vector<std::int64_t>> out(count);
    std::vector<TokenRead> reads(count);
    for (std::size_t i = 0; i < count; ++i) {
      // Within an array, across two of them and across several; longer than a chunk; none.
      out[i].resize(random() % (i % 50 == 0 ? 40'000 : 1'500));
      reads[i].first = static_cast<std::int64_t>(random() % (all.size() - out[i].size() + 1));
      reads[i].out = out[i];
    }
    if (count > 2) reads[2].first = static_cast<std::int64_t>(all.size()) + 1;
    source->ReadMany(reads);
    for (std::size_t i = 0; i < count; ++i) {
      if (i == 2) {
        EXPECT_THAT(reads[i].status, StatusIs(StatusCode::kOutOfRange));
        continue;
      }
      ASSERT_OK(reads[i].status);
      EXPECT_TRUE(std::equal(out[i].begin(), out[i].end(), all.begin() + reads[i].first));
    }
  }
}

TEST(OpenTokenSource, AFileThatIsWrittenToWhileItIsOpenIsAborted) {
  const TempDir directory;
  WriteCountingFile(directory / "a", 5000, {.vocabulary_size = 333});
  ASSERT_OK_AND_ASSIGN(auto source, OpenTokenSource(directory / "a"));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  WriteBytes(directory / "a", ReadBytes(directory / "a"));
  std::this_thread::sleep_for(std::chrono::milliseconds(150));  // LocalStorageOptions
  EXPECT_THAT(ReadAll(*source), StatusIs(StatusCode::kAborted, HasSubstr("written to")));
}

TEST(OpenTokenSource, SaysWhatAPathIsNot) {
  const TempDir directory;
  EXPECT_THAT(OpenTokenSource(directory / "gone"),
              StatusIs(StatusCode::kNotFound, HasSubstr("gone")));
  EXPECT_THAT(OpenTokenSource(directory.path()),
              StatusIs(StatusCode::kNotFound, HasSubstr("manifest.json")));
  WriteBytes(directory / "empty", "");
  EXPECT_THAT(OpenTokenSource(directory / "empty"),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("empty")));
  WriteBytes(directory / "text", "Once upon a time");
  EXPECT_THAT(OpenTokenSource(directory / "text"),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("ait pack text")));
  EXPECT_THAT(OpenTokenSource("/dev/null"),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("regular file")));
}

TEST(OpenTokenSource, ComparesTheVocabularyAskedForWithTheOneStated) {
  const TempDir directory;
  WriteCountingFile(directory / "a", 10, {.vocabulary_size = 333});
  EXPECT_OK(OpenTokenSource(directory / "a", {.vocabulary_size = 333}));
  EXPECT_THAT(OpenTokenSource(directory / "a", {.vocabulary_size = 334}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("333")));
  EXPECT_THAT(OpenTokenSource(directory / "a", {.vocabulary_size = -1}),
              StatusIs(StatusCode::kInvalidArgument));
}

TEST(OpenTokenSource, ReadsBothVariantsOfLlmc) {
  const TempDir directory;
  WriteBytes(directory / "gpt2.bin",
             LlmcBytes<std::uint16_t>(20240520, 1, {50256, 0, 1, 65535, 7}));
  ASSERT_OK_AND_ASSIGN(auto gpt2, OpenTokenSource(directory / "gpt2.bin"));
  EXPECT_EQ(gpt2->vocabulary_size(), 65536);
  ASSERT_OK_AND_ASSIGN(auto tokens, ReadAll(*gpt2));
  EXPECT_THAT(tokens, ElementsAre(50256, 0, 1, 65535, 7));

  WriteBytes(directory / "llama3.bin",
             LlmcBytes<std::uint32_t>(20240801, 7, {128000, 4294967295u, 5}));
  ASSERT_OK_AND_ASSIGN(auto llama3, OpenTokenSource(directory / "llama3.bin"));
  EXPECT_EQ(llama3->vocabulary_size(), std::int64_t{1} << 32);
  ASSERT_OK_AND_ASSIGN(tokens, ReadAll(*llama3));
  EXPECT_THAT(tokens, ElementsAre(128000, 4294967295, 5));

  ASSERT_OK_AND_ASSIGN(gpt2, OpenTokenSource(directory / "gpt2.bin", {.vocabulary_size = 50257}));
  EXPECT_EQ(gpt2->vocabulary_size(), 50257);
  EXPECT_THAT(ReadAll(*gpt2), StatusIs(StatusCode::kDataLoss, HasSubstr("token 65535")));
}

TEST(OpenTokenSource, ChecksEveryLengthOfLlmc) {
  const TempDir directory;
  const std::string good = LlmcBytes<std::uint16_t>(20240520, 1, {1, 2, 3});
  const auto expect = [&](const std::string& bytes, StatusCode code, const char* reason) {
    WriteBytes(directory / "a.bin", bytes);
    EXPECT_THAT(OpenTokenSource(directory / "a.bin"), StatusIs(code, HasSubstr(reason)));
  };
  for (std::size_t length : {4, 11, 12, 1023, 1024, 1025, 1028, 1029}) {
    expect(good.substr(0, length), StatusCode::kDataLoss, "truncated");
  }
  expect(good + "xx", StatusCode::kDataLoss, "too long");
  expect(LlmcBytes<std::uint16_t>(20240520, 2, {1}), StatusCode::kUnimplemented, "version 2");
  std::string negative = good;
  negative.replace(8, 4, "\xff\xff\xff\xff");
  expect(negative, StatusCode::kDataLoss, "states -1 tokens");
}

class Megatron : public ::testing::Test {
 protected:
  void Write(const std::string& index, const std::string& tokens) {
    WriteBytes(directory_ / "m.idx", index);
    WriteBytes(directory_ / "m.bin", tokens);
  }
  void ExpectError(const std::string& index, StatusCode code, const char* reason) {
    WriteBytes(directory_ / "m.idx", index);
    EXPECT_THAT(OpenTokenSource(directory_ / "m"), StatusIs(code, HasSubstr(reason)));
  }
  const TempDir directory_;
};

TEST_F(Megatron, IsReadByPrefixBinOrIdx) {
  Write(MegatronIndexBytes(8, 2, {2, 0, 3}), BytesOfTokens<std::uint16_t>({5, 6, 7, 8, 65535}));
  for (const char* name : {"m", "m.bin", "m.idx"}) {
    ASSERT_OK_AND_ASSIGN(auto source, OpenTokenSource(directory_ / name));
    ASSERT_OK_AND_ASSIGN(auto tokens, ReadAll(*source));
    EXPECT_THAT(tokens, ElementsAre(5, 6, 7, 8, 65535)) << name;
  }
}

TEST_F(Megatron, IsReadInEveryIntegerDType) {
  const auto expect_read = [&](std::uint8_t code, const auto& tokens) {
    using T = typename std::decay_t<decltype(tokens)>::value_type;
    Write(MegatronIndexBytes(code, sizeof(T), {static_cast<std::int32_t>(tokens.size())}),
          BytesOfTokens<T>(tokens));
    ASSERT_OK_AND_ASSIGN(auto source, OpenTokenSource(directory_ / "m"));
    ASSERT_OK_AND_ASSIGN(auto read, ReadAll(*source));
    EXPECT_EQ(read, std::vector<std::int64_t>(tokens.begin(), tokens.end())) << int{code};
  };
  expect_read(1, std::vector<std::uint8_t>{0, 255});
  expect_read(3, std::vector<std::int16_t>{0, 32767});
  expect_read(4, std::vector<std::int32_t>{0, 2147483647});
  expect_read(5, std::vector<std::int64_t>{0, 4294967296});
  expect_read(8, std::vector<std::uint16_t>{0, 65535});
  for (std::uint8_t code : {0, 2, 6, 7, 9, 255}) {
    ExpectError(MegatronIndexBytes(code, 2, {2}), StatusCode::kUnimplemented, "dtype code");
  }
}

TEST_F(Megatron, NegativeTokensAreNotInTheVocabulary) {
  Write(MegatronIndexBytes(4, 4, {3}), BytesOfTokens<std::int32_t>({1, -1, 5}));
  ASSERT_OK_AND_ASSIGN(auto source, OpenTokenSource(directory_ / "m"));
  EXPECT_THAT(ReadAll(*source),
              StatusIs(StatusCode::kDataLoss, HasSubstr("token -1 at position 1")));
}

TEST_F(Megatron, EveryLengthIsChecked) {
  Write("", BytesOfTokens<std::uint16_t>({1, 2, 3, 4, 5}));
  const std::string good = MegatronIndexBytes(8, 2, {2, 3});
  for (std::size_t length = 0; length < good.size(); ++length) {
    ExpectError(good.substr(0, length), StatusCode::kDataLoss, "truncated");
  }
  ExpectError(good + "x", StatusCode::kDataLoss, "too long");
  ExpectError(good + "xx", StatusCode::kUnimplemented, "multimodal");
  // Counts whose products wrap around 2^64.
  std::string huge = good;
  huge.replace(18, 8, std::string("\0\0\0\0\0\0\0\x40", 8));
  ExpectError(huge, StatusCode::kDataLoss, "do not take");
  ExpectError(MegatronIndexBytes(8, 2, {2, 4}), StatusCode::kDataLoss, "states 6 tokens");
  ExpectError(MegatronIndexBytes(8, 2, {6, -1}), StatusCode::kDataLoss, "length -1");
  std::string pointer = good;
  pointer[34 + 8 + 8] = 2;  // sequence 1 begins at byte 2 instead of 4
  ExpectError(pointer, StatusCode::kDataLoss, "sequence 1 begins at byte 2");
  std::string border = good;
  border[34 + 8 + 16 + 8] = 9;
  ExpectError(border, StatusCode::kDataLoss, "document border 1 is 9");
  std::string last = good;
  last[34 + 8 + 16 + 16] = 1;
  ExpectError(last, StatusCode::kDataLoss, "documents end at sequence 1 of 2");
  std::string version = good;
  version[9] = 2;
  ExpectError(version, StatusCode::kUnimplemented, "version 2");
  std::string magic = good;
  magic[0] = 'X';
  ExpectError(magic, StatusCode::kInvalidArgument, "MMIDIDX");
  std::filesystem::remove(directory_ / "m.bin");
  ExpectError(good, StatusCode::kNotFound, "m.bin");
}

TEST_F(Megatron, AnIndexLargerThanOneReadIsChecked) {
  std::vector<std::int32_t> lengths(40'000, 1);
  Write(MegatronIndexBytes(1, 1, lengths), std::string(40'000, 'x'));
  ASSERT_OK_AND_ASSIGN(auto source, OpenTokenSource(directory_ / "m"));
  EXPECT_EQ(source->token_count(), 40'000);
}

TEST(TokenSource, DigestTellsStreamsApart) {
  const TempDir directory;
  WriteCountingFile(directory / "a", 100, {.vocabulary_size = 256});
  WriteCountingFile(directory / "same", 100, {.vocabulary_size = 255});
  WriteCountingFile(directory / "b", 101, {.vocabulary_size = 256});
  WriteBytes(directory / "c.bin", LlmcBytes<std::uint16_t>(20240520, 1, {1, 2, 3}));
  WriteBytes(directory / "d.bin", LlmcBytes<std::uint16_t>(20240520, 1, {1, 2, 4}));
  std::vector<std::uint64_t> digests;
  for (const char* name : {"a", "b", "c.bin", "d.bin", "same"}) {
    ASSERT_OK_AND_ASSIGN(auto source, OpenTokenSource(directory / name));
    digests.push_back(source->digest());
  }
  EXPECT_EQ(digests.front(), digests.back());
  digests.pop_back();
  std::sort(digests.begin(), digests.end());
  EXPECT_EQ(std::unique(digests.begin(), digests.end()), digests.end());
}

}  // namespace
}  // namespace ait

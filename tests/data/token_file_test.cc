// SPDX-License-Identifier: Apache-2.0
#include "ait/data/token_file.h"

#include <gtest/gtest.h>

#include <limits>

#include "ait/data/crc32c.h"
#include "ait/data/token_source.h"
#include "data/data_test_support.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::NamesIn;
using ::ait::testing::Put;
using ::ait::testing::ReadBytes;
using ::ait::testing::StatusIs;
using ::ait::testing::TempDir;
using ::ait::testing::WriteBytes;
using ::ait::testing::WriteCountingFile;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// The header of the file comment, field by field.
std::string HeaderBytes(std::uint32_t version, std::uint8_t dtype, std::uint64_t vocabulary,
                        std::uint64_t tokens, std::uint32_t crc) {
  std::string bytes = "AITTOKEN";
  Put(bytes, version);
  Put(bytes, dtype);
  bytes.resize(16, '\0');
  Put(bytes, vocabulary);
  Put(bytes, tokens);
  Put(bytes, crc);
  bytes.resize(60, '\0');
  Put(bytes, Crc32c(std::as_bytes(std::span(bytes))));
  return bytes;
}

TEST(TokenFileWriter, WritesTheDocumentedBytes) {
  const TempDir directory;
  ASSERT_OK_AND_ASSIGN(
      auto writer,
      TokenFileWriter::Create(directory / "a", {.dtype = DType::kUInt16, .vocabulary_size = 515}));
  const std::vector<std::uint32_t> tokens = {1, 514};
  ASSERT_OK(writer.Append(tokens));
  ASSERT_OK_AND_ASSIGN(const TokenFileHeader header, writer.Commit());
  const std::string payload("\x01\x00\x02\x02", 4);
  const std::uint32_t crc = Crc32c(std::as_bytes(std::span(payload)));
  EXPECT_EQ(ReadBytes(directory / "a"), HeaderBytes(1, 10, 515, 2, crc) + payload);
  EXPECT_EQ(header, (TokenFileHeader{DType::kUInt16, 515, 2, crc}));
}

TEST(TokenFileWriter, KeepsEveryTokenOfEveryDType) {
  const TempDir directory;
  for (const auto& [dtype, largest] : {std::pair{DType::kUInt8, 0xffu},
                                       {DType::kUInt16, 0xffffu},
                                       {DType::kUInt32, 0xffffffffu}}) {
    const std::string path = directory / Name(dtype);
    ASSERT_OK_AND_ASSIGN(auto writer,
                         TokenFileWriter::Create(
                             path, {.dtype = dtype, .vocabulary_size = std::int64_t{largest} + 1}));
    std::vector<std::uint32_t> tokens(200'000);  // more than one chunk
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = largest - static_cast<std::uint32_t>(i * 7 % 251);
    }
    ASSERT_OK(writer.Append(tokens));
    ASSERT_OK(writer.Append({}));
    ASSERT_OK(writer.Append(std::span(tokens).first(3)));
    ASSERT_OK(writer.Commit());
    ASSERT_OK_AND_ASSIGN(auto source, OpenTokenSource(path));
    ASSERT_EQ(source->token_count(), 200'003);
    std::vector<std::int64_t> read(200'003);
    ASSERT_OK(source->Read(0, read));
    for (std::size_t i = 0; i < read.size(); ++i) ASSERT_EQ(read[i], tokens[i % 200'000]) << i;
  }
}

TEST(TokenFileWriter, RefusesATokenOutsideOfTheVocabulary) {
  const TempDir directory;
  ASSERT_OK_AND_ASSIGN(auto writer,
                       TokenFileWriter::Create(directory / "a", {.vocabulary_size = 9}));
  const std::vector<std::uint32_t> tokens = {8, 9};
  EXPECT_THAT(writer.Append(tokens),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("token 9 at position 1")));
}

TEST(TokenFileWriter, RefusesAVocabularyThatTheDTypeCannotHold) {
  const TempDir directory;
  for (std::int64_t vocabulary : {std::int64_t{0}, std::int64_t{-1}, std::int64_t{257}}) {
    EXPECT_THAT(TokenFileWriter::Create(directory / "a",
                                        {.dtype = DType::kUInt8, .vocabulary_size = vocabulary}),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("vocabulary")));
  }
  EXPECT_THAT(
      TokenFileWriter::Create(directory / "a", {.dtype = DType::kInt64, .vocabulary_size = 5}),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("dtype")));
  EXPECT_THAT(NamesIn(directory.path()), IsEmpty());
}

TEST(DecodeTokenFileHeader, GivesBackWhatEncodeTook) {
  const TokenFileHeader header = {DType::kUInt32, 128256, 1'000'000'000'000, 0xdeadbeef};
  ASSERT_OK_AND_ASSIGN(const TokenFileHeader decoded, DecodeTokenFileHeader(Encode(header)));
  EXPECT_EQ(decoded, header);
}

TEST(DecodeTokenFileHeader, FindsEveryFlippedBit) {
  auto bytes = Encode({DType::kUInt16, 50257, 1234, 5678});
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    bytes[bit / 8] ^= std::byte(1 << (bit % 8));
    EXPECT_THAT(DecodeTokenFileHeader(bytes), StatusIs(StatusCode::kDataLoss)) << bit;
    bytes[bit / 8] ^= std::byte(1 << (bit % 8));
  }
}

TEST(DecodeTokenFileHeader, RefusesFieldsThatMakeNoSense) {
  const auto decode = [](std::string bytes) {
    return DecodeTokenFileHeader(
        std::span<const std::byte, 64>(std::as_bytes(std::span(bytes)).first<64>()));
  };
  EXPECT_OK(decode(HeaderBytes(1, 0, 256, 5, 0)));
  EXPECT_THAT(decode(HeaderBytes(2, 0, 256, 5, 0)),
              StatusIs(StatusCode::kUnimplemented, HasSubstr("version 2")));
  EXPECT_THAT(decode(HeaderBytes(1, 7, 256, 5, 0)), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(decode(HeaderBytes(1, 200, 256, 5, 0)), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(decode(HeaderBytes(1, 0, 257, 5, 0)), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(decode(HeaderBytes(1, 0, 0, 5, 0)), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(decode(HeaderBytes(1, 0, 256, ~0ull, 0)), StatusIs(StatusCode::kInvalidArgument));
  std::string reserved = HeaderBytes(1, 0, 256, 5, 0).substr(0, 60);
  reserved[40] = 1;
  Put(reserved, Crc32c(std::as_bytes(std::span(reserved))));
  EXPECT_THAT(decode(reserved), StatusIs(StatusCode::kInvalidArgument, HasSubstr("reserved")));
}

}  // namespace
}  // namespace ait

// SPDX-License-Identifier: Apache-2.0
#include "ait/data/format/index.h"

#include <gtest/gtest.h>

#include <random>
#include <string>

#include "ait/data/format/formats.h"
#include "data/data_test_support.h"
#include "data/format/format_test_support.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::Put;
using ::ait::testing::StatusIs;
using ::ait::testing::TarBytes;

StatusOr<ShardIndex> Parse(std::string_view bytes) {
  return ParseIndex(std::as_bytes(std::span(bytes)), "x.tar.aitidx");
}

ShardIndex Example() {
  return {.format = "webdataset",
          .shard_bytes = 10240,
          .extents = {{0, 1024}, {1024, 2048}, {5120, 512}},
          .checksums = {1, 2, 0xffffffffu}};
}

TEST(IndexTest, IsReadAsItWasWritten) {
  for (const bool has_checksums : {true, false}) {
    ShardIndex index = Example();
    index.key_rule = KeyRule::kLastDot;
    if (!has_checksums) index.checksums.clear();
    const std::string bytes = SerializeIndex(index);
    ASSERT_OK_AND_ASSIGN(const ShardIndex read, Parse(bytes));
    EXPECT_EQ(read.format, "webdataset");
    EXPECT_EQ(read.shard_bytes, 10240);
    EXPECT_EQ(read.key_rule, KeyRule::kLastDot);
    ASSERT_EQ(read.extents.size(), 3u);
    EXPECT_EQ(read.extents[2].offset_bytes, 5120);
    EXPECT_EQ(read.extents[2].length_bytes, 512);
    EXPECT_EQ(read.checksums, index.checksums);
    ASSERT_OK_AND_ASSIGN(const ShardIndexHeader header,
                         ParseIndexHeader(std::as_bytes(std::span(bytes)).first(kIndexHeaderBytes),
                                          static_cast<std::int64_t>(bytes.size()), "x"));
    EXPECT_EQ(header.record_count, 3);
    EXPECT_EQ(header.has_checksums, has_checksums);
  }
}

TEST(IndexTest, TheBytesAreThoseOfTheDescription) {
  std::string table;
  for (const std::uint64_t offset : {0, 1024, 5120}) Put(table, offset);
  for (const std::uint64_t length : {1024, 2048, 512}) Put(table, length);
  for (const std::uint32_t checksum : {1u, 2u, 0xffffffffu}) Put(table, checksum);
  table += "XEDNITIA";
  std::string header = "AITINDEX";
  Put(header, std::uint32_t{1});
  Put(header, std::uint32_t{1});
  header += std::string("webdataset\0\0\0\0\0\0", 16);
  Put(header, std::uint64_t{10240});
  Put(header, std::uint64_t{3});
  const std::string written = SerializeIndex(Example());
  EXPECT_EQ(written.substr(0, 48), header);
  EXPECT_EQ(written.substr(64), table);
}

TEST(IndexTest, EveryTruncationAndEveryFlippedBitIsNoticed) {
  const std::string bytes = SerializeIndex(Example());
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(Parse(std::string_view(bytes).substr(0, length)).ok()) << length;
  }
  EXPECT_THAT(Parse(bytes + '\0'), StatusIs(StatusCode::kDataLoss));
  for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
    std::string damaged = bytes;
    damaged[bit / 8] ^= static_cast<char>(1 << (bit % 8));
    EXPECT_FALSE(Parse(damaged).ok()) << bit;
  }
}

TEST(IndexTest, RecordsMustLieInTheShardOneAfterTheOther) {
  ShardIndex index = Example();
  index.extents[1].offset_bytes = 1000;
  EXPECT_THAT(Parse(SerializeIndex(index)), StatusIs(StatusCode::kDataLoss));
  index = Example();
  index.extents[2].length_bytes = 10000;
  EXPECT_THAT(Parse(SerializeIndex(index)), StatusIs(StatusCode::kDataLoss));
  index = Example();
  index.extents[2].length_bytes = -1;
  EXPECT_THAT(Parse(SerializeIndex(index)), StatusIs(StatusCode::kDataLoss));
}

TEST(IndexTest, AShardOfAnotherSizeIsRefused) {
  const std::string tar = TarBytes({{"a.x", "1"}, {"b.x", "2"}});
  const auto object = MemoryObject("x.tar", ByteView::Copy(tar));
  ASSERT_OK_AND_ASSIGN(const ShardIndex index, BuildIndex(object));
  const auto beside = MemoryObject("x.tar.aitidx", ByteView::Copy(SerializeIndex(index)));
  EXPECT_OK(OpenShard(object, {}, beside).status());
  const auto longer = MemoryObject("x.tar", ByteView::Copy(tar + std::string(512, '\0')));
  EXPECT_THAT(OpenShard(longer, {}, beside), StatusIs(StatusCode::kDataLoss));
}

TEST(IndexTest, ChecksumsFindChangedBytesOfFiles) {
  const std::string tar = TarBytes({{"a.x", "1"}, {"b.x", "2"}, {"c.x", "3"}});
  ASSERT_OK_AND_ASSIGN(const ShardIndex index,
                       BuildIndex(MemoryObject("x.tar", ByteView::Copy(tar))));
  const auto beside = MemoryObject("x.tar.aitidx", ByteView::Copy(SerializeIndex(index)));
  std::string damaged = tar;
  damaged[1536] ^= 1;  // the file of b
  const auto object = MemoryObject("x.tar", ByteView::Copy(damaged));
  ASSERT_OK_AND_ASSIGN(const auto shard,
                       OpenShard(object, {.check = ShardCheck::kContents}, beside));
  EXPECT_OK(shard->ReadRecord(0).status());
  EXPECT_THAT(shard->ReadRecord(1), StatusIs(StatusCode::kDataLoss));
  EXPECT_OK(shard->ReadRecord(2).status());
  ASSERT_OK_AND_ASSIGN(const auto stream, shard->Stream({}));
  Sample sample;
  EXPECT_OK(stream->Next(sample).status());
  EXPECT_THAT(stream->Next(sample), StatusIs(StatusCode::kDataLoss));
  EXPECT_OK(stream->Next(sample).status());
  EXPECT_EQ(sample.id, 2);
}

TEST(IndexTest, AnIndexOfAnotherRuleOfNamesIsNotUsed) {
  const std::string tar = TarBytes({{"a.b.x", "1"}, {"a.c.x", "2"}});
  const auto object = MemoryObject("x.tar", ByteView::Copy(tar));
  ASSERT_OK_AND_ASSIGN(const ShardIndex index, BuildIndex(object));
  EXPECT_EQ(index.extents.size(), 1u);
  const auto beside = MemoryObject("x.tar.aitidx", ByteView::Copy(SerializeIndex(index)));
  ASSERT_OK_AND_ASSIGN(const auto shard,
                       OpenShard(object, {.key_rule = KeyRule::kLastDot}, beside));
  EXPECT_EQ(shard->record_count(), 2);
}

}  // namespace
}  // namespace ait

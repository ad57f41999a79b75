// SPDX-License-Identifier: Apache-2.0
// Many shards as one source of samples.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include "ait/data/format/formats.h"
#include "ait/data/format/index.h"
#include "data/format/format_test_support.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::MapStorage;
using ::ait::testing::Shown;
using ::ait::testing::StatusIs;
using ::ait::testing::TarBytes;
using ::ait::testing::TarEntry;

// Shard s has 3 + s % 4 samples, each with its number.
std::string ShardName(int s) { return StrCat("train/", s / 100, s / 10 % 10, s % 10, ".tar"); }

int PutShards(MapStorage& storage, int shards, bool with_index) {
  int next = 0;
  for (int s = 0; s < shards; ++s) {
    std::vector<TarEntry> entries;
    for (int i = 0; i < 3 + s % 4; ++i, ++next) {
      entries.push_back({StrCat("s", next, ".a"), StrCat("value ", next)});
      entries.push_back(
          {StrCat("s", next, ".b"), std::string(static_cast<std::size_t>(next % 900), 'b')});
    }
    const std::string bytes = TarBytes(entries);
    storage.Put(ShardName(s), bytes);
    if (!with_index) continue;
    const auto index = BuildIndex(MemoryObject(ShardName(s), ByteView::Copy(bytes)));
    EXPECT_OK(index.status());
    storage.Put(IndexPath(ShardName(s)), SerializeIndex(*index));
  }
  return next;
}

std::string Expected(std::int64_t i) {
  return StrCat("s", i, "{a=value ", i, ",b=", std::string(static_cast<std::size_t>(i % 900), 'b'),
                "}");
}

TEST(OpenSamplesTest, SamplesOfAllShardsAreNumberedThrough) {
  for (const bool with_index : {true, false}) {
    auto storage = std::make_shared<MapStorage>();
    const int count = PutShards(*storage, 30, with_index);
    ASSERT_OK_AND_ASSIGN(const auto samples, OpenSamples(storage, "train/"));
    EXPECT_EQ(samples->sample_count(), count);
    EXPECT_EQ(samples->name(), "train/");
    ASSERT_EQ(samples->block_begins().size(), 30u);
    EXPECT_EQ(samples->block_begins()[2], 7);
    std::vector<SampleRead> reads;
    std::mt19937 random(3);
    for (int i = 0; i < 500; ++i)
      reads.push_back({.id = static_cast<std::int64_t>(random() % static_cast<unsigned>(count))});
    samples->Read(reads);
    for (const SampleRead& read : reads) {
      ASSERT_OK(read.status);
      EXPECT_EQ(Shown(read.sample), Expected(read.id));
      EXPECT_EQ(read.sample.id, read.id);
    }
  }
}

TEST(OpenSamplesTest, SamplesThatAreNotThere) {
  auto storage = std::make_shared<MapStorage>();
  const int count = PutShards(*storage, 2, true);
  ASSERT_OK_AND_ASSIGN(const auto samples, OpenSamples(storage, "train/"));
  std::vector<SampleRead> reads = {{.id = -1}, {.id = count}, {.id = 0}};
  samples->Read(reads);
  EXPECT_THAT(reads[0].status, StatusIs(StatusCode::kOutOfRange));
  EXPECT_THAT(reads[1].status, StatusIs(StatusCode::kOutOfRange));
  EXPECT_OK(reads[2].status);
}

TEST(OpenSamplesTest, NeighboursAreReadTogether) {
  auto storage = std::make_shared<MapStorage>();
  const int count = PutShards(*storage, 10, true);
  ASSERT_OK_AND_ASSIGN(const auto samples, OpenSamples(storage, "train/"));
  std::vector<SampleRead> reads(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) reads[static_cast<std::size_t>(count - 1 - i)].id = i;
  storage->read_count = 0;
  samples->Read(reads);
  for (const SampleRead& read : reads) ASSERT_OK(read.status);
  EXPECT_EQ(storage->read_count, 2 * 10);  // each shard: the rest of its index, and all samples
}

TEST(OpenSamplesTest, AnIndexedShardCostsOneSmallRead) {
  auto storage = std::make_shared<MapStorage>();
  PutShards(*storage, 200, true);
  storage->read_count = 0;
  storage->read_bytes = 0;
  ASSERT_OK_AND_ASSIGN(const auto samples, OpenSamples(storage, "train/"));
  EXPECT_EQ(storage->read_count, 200);
  EXPECT_EQ(storage->read_bytes, 200 * kIndexHeaderBytes);
}

TEST(OpenSamplesTest, AListOfShardsKeepsItsOrder) {
  auto storage = std::make_shared<MapStorage>();
  PutShards(*storage, 3, true);
  ASSERT_OK_AND_ASSIGN(const auto samples,
                       OpenSamples(storage, std::vector{ShardName(2), ShardName(0)}));
  EXPECT_EQ(samples->sample_count(), 5 + 3);
  std::vector<SampleRead> reads = {{.id = 5}};
  samples->Read(reads);
  ASSERT_OK(reads[0].status);
  EXPECT_EQ(reads[0].sample.key, "s0");
  ASSERT_OK_AND_ASSIGN(const auto one, OpenSamples(storage, ShardName(1)));
  EXPECT_EQ(one->sample_count(), 4);
}

TEST(OpenSamplesTest, TheDigestIsOfContentsAndOrder) {
  auto storage = std::make_shared<MapStorage>();
  PutShards(*storage, 3, true);
  const auto digest = [&](std::vector<int> shards) {
    std::vector<std::string> urls;
    for (const int s : shards) urls.push_back(ShardName(s));
    const auto samples = OpenSamples(storage, urls);
    EXPECT_OK(samples.status());
    return samples.ok() ? (*samples)->digest() : 0;
  };
  const std::uint64_t first = digest({0, 1, 2});
  EXPECT_EQ(digest({0, 1, 2}), first);
  EXPECT_NE(digest({1, 0, 2}), first);
  EXPECT_NE(digest({0, 1}), first);
  std::string bytes = TarBytes({{"s0.a", "value 9"},
                                {"s0.b", ""},
                                {"s1.a", "value 1"},
                                {"s1.b", "b"},
                                {"s2.a", "value 2"},
                                {"s2.b", "bb"}});
  storage->Put(ShardName(0), bytes);  // a file of it has other bytes, all sizes are the same
  const auto index = BuildIndex(MemoryObject(ShardName(0), ByteView::Copy(bytes)));
  ASSERT_OK(index.status());
  storage->Put(IndexPath(ShardName(0)), SerializeIndex(*index));
  EXPECT_NE(digest({0, 1, 2}), first);
}

TEST(OpenSamplesTest, ManyShardsAreNotAllOpenAtOnce) {
  auto storage = std::make_shared<MapStorage>();
  const int count = PutShards(*storage, 400, true);
  ASSERT_OK_AND_ASSIGN(const auto samples, OpenSamples(storage, "train/"));
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < count; i += 3) {
      SampleRead read = {.id = i};
      samples->Read({&read, 1});
      ASSERT_OK(read.status);
      ASSERT_EQ(read.sample.key, StrCat("s", i));
    }
  }
}

TEST(OpenSamplesTest, AShardThatChangedOrVanishedIsNamed) {
  for (const bool with_index : {true, false}) {
    auto storage = std::make_shared<MapStorage>();
    PutShards(*storage, 3, with_index);
    ASSERT_OK_AND_ASSIGN(const auto samples, OpenSamples(storage, "train/"));
    storage->Put(ShardName(0), TarBytes({{"other.a", "1"}}));
    storage->Remove(ShardName(1));
    std::vector<SampleRead> reads = {{.id = 0}, {.id = 3}, {.id = 7}};
    samples->Read(reads);
    EXPECT_THAT(reads[0].status, StatusIs(StatusCode::kAborted));
    EXPECT_NE(Message(reads[0].status).find(ShardName(0)), std::string::npos);
    EXPECT_THAT(reads[1].status, StatusIs(StatusCode::kNotFound));
    EXPECT_NE(Message(reads[1].status).find(ShardName(1)), std::string::npos);
    EXPECT_OK(reads[2].status);
  }
}

TEST(OpenSamplesTest, DamagedShardsAreRefusedWithTheirName) {
  auto storage = std::make_shared<MapStorage>();
  PutShards(*storage, 5, false);
  storage->Put(ShardName(3), TarBytes({{"a.x", "1"}}, 0));
  const Status status = OpenSamples(storage, "train/").status();
  EXPECT_THAT(status, StatusIs(StatusCode::kDataLoss));
  EXPECT_NE(Message(status).find(ShardName(3)), std::string::npos) << status;
  EXPECT_THAT(OpenSamples(storage, "nothing/"), StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(OpenSamples(storage, std::vector<std::string>{"nothing.tar"}),
              StatusIs(StatusCode::kNotFound));
  EXPECT_THAT(OpenSamples(storage, ShardName(0), {.open_threads = 0}),
              StatusIs(StatusCode::kInvalidArgument));
}

TEST(OpenSamplesTest, ABadSampleSpoilsNoOther) {
  auto storage = std::make_shared<MapStorage>();
  storage->Put("x.tar", TarBytes({{"a.x", "1"}, {"b.x", "", '2', "a.x"}, {"c.x", "3"}}));
  ASSERT_OK_AND_ASSIGN(const auto samples, OpenSamples(storage, "x.tar"));
  std::vector<SampleRead> reads = {{.id = 0}, {.id = 1}, {.id = 2}};
  samples->Read(reads);
  EXPECT_OK(reads[0].status);
  EXPECT_THAT(reads[1].status, StatusIs(StatusCode::kInvalidArgument));
  EXPECT_NE(Message(reads[1].status).find("x.tar at byte 1024"), std::string::npos);
  EXPECT_OK(reads[2].status);
  const SamplePlace place = samples->place(1);
  EXPECT_EQ(place.url, "x.tar");
  EXPECT_EQ(place.offset_bytes, 1024);
  EXPECT_EQ(place.size_bytes, 512);
  EXPECT_EQ(samples->size_bytes(0), 1024);
}

TEST(OpenSamplesTest, AStreamGoesThroughAllShards) {
  for (const ShardCheck check : {ShardCheck::kStructure, ShardCheck::kContents}) {
    auto storage = std::make_shared<MapStorage>();
    const int count = PutShards(*storage, 20, true);
    std::vector<std::string> urls;
    for (int s = 0; s < 20; ++s) urls.push_back(ShardName(s));
    SamplesOptions options;
    options.shard.check = check;
    ASSERT_OK_AND_ASSIGN(const auto stream,
                         StreamSamples(storage, urls, options, {.block_bytes = 2000}));
    Sample sample;
    for (int i = 0; i < count; ++i) {
      ASSERT_OK_AND_ASSIGN(const bool is_there, stream->Next(sample));
      ASSERT_TRUE(is_there);
      EXPECT_EQ(sample.id, i);
      EXPECT_EQ(Shown(sample), Expected(i));
    }
    ASSERT_OK_AND_ASSIGN(const bool is_there, stream->Next(sample));
    EXPECT_FALSE(is_there);
  }
  EXPECT_THAT(StreamSamples(std::make_shared<MapStorage>(), {}), StatusIs(StatusCode::kNotFound));
}

TEST(OpenSamplesTest, AStreamTellsOfABadShardOnceAndGoesOn) {
  auto storage = std::make_shared<MapStorage>();
  storage->Put("0.tar", TarBytes({{"a.x", "1"}}));
  storage->Put("1.tar", TarBytes({{"b.x", "2"}, {"c.x", "3"}}, 0));  // cut off
  storage->Put("3.tar", TarBytes({{"d.x", "4"}}));
  ASSERT_OK_AND_ASSIGN(const auto stream,
                       StreamSamples(storage, {"0.tar", "1.tar", "2.tar", "3.tar"}));
  Sample sample;
  std::vector<std::string> seen;
  while (true) {
    const StatusOr<bool> is_there = stream->Next(sample);
    if (is_there.ok() && !*is_there) break;
    seen.push_back(is_there.ok() ? sample.key : CodeName(is_there.status().code()));
    ASSERT_LT(seen.size(), 10u);
  }
  EXPECT_EQ(seen, (std::vector<std::string>{"a", "b", "DATA_LOSS", "NOT_FOUND", "d"}));
}

TEST(OpenSamplesTest, ASampleThatIsTooLargeIsNotRead) {
  auto storage = std::make_shared<MapStorage>();
  storage->Put("x.tar",
               TarBytes({{"a.x", "1"}, {"b.x", std::string(5'000'000, 'x')}, {"c.x", "3"}}));
  SamplesOptions options;
  options.shard.max_record_bytes = 100'000;
  ASSERT_OK_AND_ASSIGN(const auto samples, OpenSamples(storage, "x.tar", options));
  std::vector<SampleRead> reads = {{.id = 0}, {.id = 1}, {.id = 2}};
  storage->read_bytes = 0;
  samples->Read(reads);
  EXPECT_OK(reads[0].status);
  EXPECT_THAT(reads[1].status, StatusIs(StatusCode::kInvalidArgument));
  EXPECT_NE(Message(reads[1].status).find("x.tar record 1"), std::string::npos) << reads[1].status;
  EXPECT_OK(reads[2].status);
  EXPECT_LT(storage->read_bytes, 500'000);
}

// One member of gzip with stored blocks, which needs no library.
std::string Gzipped(const std::string& bytes) {
  std::string packed("\x1f\x8b\x08\0\0\0\0\0\0\xff", 10);
  const auto put = [&](std::uint32_t value, int size) {
    for (int i = 0; i < size; ++i) packed += static_cast<char>(value >> (8 * i));
  };
  constexpr std::size_t kBlock = 60'000;
  for (std::size_t at = 0; at < bytes.size(); at += kBlock) {
    const std::size_t length = std::min(kBlock, bytes.size() - at);
    packed += static_cast<char>(at + length == bytes.size() ? 1 : 0);
    put(static_cast<std::uint32_t>(length), 2);
    put(static_cast<std::uint32_t>(~length), 2);
    packed.append(bytes, at, length);
  }
  std::uint32_t crc = ~0u;  // CRC-32 of IEEE 802.3
  for (const char c : bytes) {
    crc ^= static_cast<unsigned char>(c);
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? 0xedb88320u : 0);
  }
  put(~crc, 4);
  put(static_cast<std::uint32_t>(bytes.size()), 4);
  return packed;
}

TEST(OpenSamplesTest, ACompressedShardIsReadWhateverItsName) {
  const std::string tar = Gzipped(TarBytes({{"a.x", "1"}, {"b.x", "2"}}));
  for (const char* url : {"a.tar.gz", "a.tgz", "a.tar", "a", "a.tar.zstd"}) {
    for (const char* format : {"", "webdataset"}) {
      auto storage = std::make_shared<MapStorage>();
      storage->Put(url, tar);
      SamplesOptions options;
      options.shard.format = format;
      ASSERT_OK_AND_ASSIGN(const auto samples, OpenSamples(storage, url, options));
      ASSERT_EQ(samples->sample_count(), 2) << url;
      std::vector<SampleRead> reads = {{.id = 0}, {.id = 1}};
      samples->Read(reads);
      for (const SampleRead& read : reads) EXPECT_OK(read.status) << url;
      EXPECT_EQ(Shown(reads[1].sample), "b{x=2}");
      ASSERT_OK_AND_ASSIGN(const auto stream, StreamSamples(storage, {url}, options));
      ASSERT_OK_AND_ASSIGN(const auto streamed, testing::ShownOf(*stream));
      EXPECT_EQ(streamed, (std::vector<std::string>{"a{x=1}", "b{x=2}"})) << url;
    }
  }
}

TEST(OpenSamplesTest, AnIndexOfACompressedShardIsNotMade) {
  const std::string packed = Gzipped(TarBytes({{"a.x", "1"}}));
  EXPECT_THAT(BuildIndex(MemoryObject("a.tar.gz", ByteView::Copy(packed))),
              StatusIs(StatusCode::kUnimplemented));
}

TEST(OpenSamplesTest, FewUnpackedShardsAreInMemory) {
  auto storage = std::make_shared<MapStorage>();
  std::vector<SampleRead> reads;
  for (int i = 0; i < 8; ++i) {
    storage->Put(StrCat(i, ".tar.gz"), Gzipped(TarBytes({{StrCat("s", i, ".x"), "1"}})));
    reads.push_back({.id = i});
  }
  ASSERT_OK_AND_ASSIGN(const auto samples, OpenSamples(storage, ""));
  ASSERT_EQ(samples->sample_count(), 8);
  // Whether a shard is unpacked anew is seen by what is read.
  const auto bytes_of = [&](int id) {
    const std::int64_t before = storage->read_bytes;
    SampleRead read = {.id = id};
    samples->Read({&read, 1});
    EXPECT_OK(read.status);
    EXPECT_EQ(read.sample.key, StrCat("s", id));
    return storage->read_bytes - before;
  };
  for (int id = 0; id < 8; ++id) EXPECT_GT(bytes_of(id), 0) << id;
  for (int id = 4; id < 8; ++id) EXPECT_EQ(bytes_of(id), 0) << id;  // the last four are there
  for (int id = 0; id < 4; ++id) EXPECT_GT(bytes_of(id), 0) << id;
}

TEST(OpenSamplesTest, WhatLiesBesideShardsIsNotTakenForOne) {
  auto storage = std::make_shared<MapStorage>();
  storage->Put("train/.nv-meta/split.yaml", "split_parts: {}");
  storage->Put("train/.nv-meta/index.sqlite", "SQLite format 3");
  storage->Put("train/.nv-meta/.info.json", "{}");
  storage->Put("train/README.md", "# about");
  storage->Put("train/index.json", "{\"wids_version\": 1}");
  storage->Put("train/_SUCCESS", "");
  storage->Put("train/a.tar", TarBytes({{"a.x", "1"}}));
  storage->Put("train/a.tar.idx", "energon");
  storage->Put("train/sub/b.tar", TarBytes({{"b.x", "2"}}));
  ASSERT_OK_AND_ASSIGN(const auto samples, OpenSamples(storage, "train/"));
  EXPECT_EQ(samples->sample_count(), 2);
  ASSERT_OK_AND_ASSIGN(const auto same, OpenSamples(storage, "train"));
  EXPECT_EQ(same->sample_count(), 2);
  // A directory may be hidden itself.
  storage->Put("/home/.cache/data/a.tar", TarBytes({{"a.x", "1"}}));
  ASSERT_OK_AND_ASSIGN(const auto hidden, OpenSamples(storage, "/home/.cache/data"));
  EXPECT_EQ(hidden->sample_count(), 1);
  // What is of no known format and nothing of the kind is still said.
  storage->Put("train/c.unknown", "what?");
  const Status status = OpenSamples(storage, "train/").status();
  EXPECT_THAT(status, StatusIs(StatusCode::kInvalidArgument));
  EXPECT_NE(Message(status).find("train/c.unknown"), std::string::npos) << status;
}

}  // namespace
}  // namespace ait

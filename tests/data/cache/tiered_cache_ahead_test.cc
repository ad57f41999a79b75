// SPDX-License-Identifier: Apache-2.0
// Reads of many parts at once, and streams.
#include <gtest/gtest.h>

#include "data/cache/cache_test_support.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using namespace std::chrono_literals;
using ::ait::testing::FakeStorage;
using ::ait::testing::Meeting;
using ::ait::testing::RandomText;
using ::ait::testing::ReadText;
using ::ait::testing::StatusIs;
using ::ait::testing::TempDir;

constexpr std::int64_t kPart = 4096;
constexpr std::int64_t kEntry = 4 * kPart;

class CacheAheadTest : public ::testing::Test {
 protected:
  CacheAheadTest() { remote_->Put("a", text_); }
  std::shared_ptr<TieredCache> Make(int threads = 8) {
    auto cache = TieredCache::Create(remote_, {.disk_bytes = 1 << 20,
                                               .disk_directory = directory_ / "cache",
                                               .part_bytes = kPart,
                                               .entry_bytes = kEntry,
                                               .lease = 0ms,
                                               .use_interval = 0ms,
                                               .retry_after = 0ms,
                                               .threads = threads});
    EXPECT_OK(cache);
    return *cache;
  }
  // Reads of these ranges, as text, and then compared.
  void ExpectRead(const StoredObject& object,
                  const std::vector<std::pair<std::int64_t, std::int64_t>>& ranges) {
    std::vector<std::string> got;
    for (const auto& [offset, length] : ranges) got.emplace_back(length, '?');
    std::vector<ObjectRead> reads;
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      reads.push_back({ranges[i].first, std::as_writable_bytes(std::span(got[i])), {}});
    }
    object.ReadMany(reads);
    for (std::size_t i = 0; i < ranges.size(); ++i) {
      const auto [offset, length] = ranges[i];
      EXPECT_OK(reads[i].status);
      EXPECT_EQ(got[i], text_.substr(offset, length)) << offset << " " << length;
    }
  }
  std::string ReadAll(ObjectStream& stream) {
    std::string all;
    for (;;) {
      StatusOr<ByteView> block = stream.Next();
      if (!block.ok()) return block.status().ToString();
      if (block->is_empty()) return all;
      all.append(reinterpret_cast<const char*>(block->data()), block->size_bytes());
    }
  }

  const std::string text_ = RandomText(5 * kEntry + 777, 1);
  const std::shared_ptr<FakeStorage> remote_ = std::make_shared<FakeStorage>();
  const TempDir directory_;
};

TEST_F(CacheAheadTest, ABatchBringsItsPartsAtOnceAndEachOnce) {
  Meeting meeting(4);
  remote_->on_read = [&](const std::string&, std::int64_t) {
    EXPECT_TRUE(meeting.Come());
    return OkStatus();
  };
  const auto cache = Make(4);
  ASSERT_OK_AND_ASSIGN(const auto object, cache->Open("a"));
  ExpectRead(*object, {{10, 10}, {kPart, 1}, {20, 20}, {3 * kEntry, 5}, {kEntry + 5, 9}, {0, 0}});
  EXPECT_EQ(remote_->reads, 4);
  remote_->on_read = nullptr;
  ExpectRead(*object, {{0, 5 * kEntry + 777}, {kEntry, 2 * kEntry}, {5, 0}});
  EXPECT_EQ(remote_->reads, 21);
  ExpectRead(*object, {{0, 5 * kEntry + 777}, {kEntry, 2 * kEntry}});
  EXPECT_EQ(remote_->reads, 21);
  EXPECT_EQ(cache->statistics().pass_through_reads, 0);
}

TEST_F(CacheAheadTest, EachReadOfABatchHasItsOwnStatus) {
  remote_->on_read = [](const std::string&, std::int64_t offset) {
    return offset == kPart ? UnavailableError("no answer") : OkStatus();
  };
  const auto cache = Make();
  ASSERT_OK_AND_ASSIGN(const auto object, cache->Open("a"));
  std::vector<std::byte> bytes(4 * kPart);
  const std::span<std::byte> all(bytes);
  std::vector<ObjectRead> reads = {{0, all.first(10), {}},
                                   {kPart - 1, all.first(2), {}},
                                   {2 * kPart, all.subspan(100, 10), {}},
                                   {6 * kEntry, all.subspan(200, 1), {}}};
  object->ReadMany(reads);
  EXPECT_OK(reads[0].status);
  EXPECT_THAT(reads[1].status, StatusIs(StatusCode::kUnavailable));
  EXPECT_OK(reads[2].status);
  EXPECT_THAT(reads[3].status, StatusIs(StatusCode::kOutOfRange));
}

TEST_F(CacheAheadTest, ManyBatchesAtOnceAreRight) {
  const auto cache = Make(3);
  std::vector<std::jthread> threads;
  for (unsigned seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      std::mt19937_64 random(seed);
      const auto object = *cache->Open("a");
      for (int round = 0; round < 50; ++round) {
        std::vector<std::pair<std::int64_t, std::int64_t>> ranges;
        for (int i = 0; i < 8; ++i) {
          const auto offset = static_cast<std::int64_t>(random() % text_.size());
          ranges.emplace_back(offset, random() % (text_.size() - offset + 1));
        }
        ExpectRead(*object, ranges);
      }
    });
  }
  threads.clear();
  EXPECT_EQ(remote_->reads, 21);
}

TEST_F(CacheAheadTest, AStreamGivesAllBytesAndItsPartsAreBroughtAhead) {
  Meeting meeting(3);
  remote_->on_read = [&](const std::string&, std::int64_t) {
    EXPECT_TRUE(meeting.Come());
    return OkStatus();
  };
  for (const int depth : {2, 0, 100}) {
    const auto cache = Make();
    ASSERT_OK_AND_ASSIGN(const auto object, cache->Open("a"));
    ASSERT_OK_AND_ASSIGN(auto stream, object->Stream({.block_bytes = 1000, .depth = depth}));
    EXPECT_EQ(ReadAll(*stream), text_);
    ASSERT_OK_AND_ASSIGN(stream, object->Stream({.offset_bytes = 5000,
                                                 .length_bytes = 3 * kEntry,
                                                 .block_bytes = 7000,
                                                 .depth = depth}));
    EXPECT_EQ(ReadAll(*stream), text_.substr(5000, 3 * kEntry));
    EXPECT_THAT(object->Stream({.block_bytes = 0}), StatusIs(StatusCode::kInvalidArgument));
  }
  EXPECT_EQ(remote_->reads, 21);
}

TEST_F(CacheAheadTest, AnErrorOfAStreamStays) {
  remote_->on_read = [](const std::string&, std::int64_t offset) {
    return offset == 2 * kPart ? UnavailableError("no answer") : OkStatus();
  };
  const auto cache = Make();
  ASSERT_OK_AND_ASSIGN(const auto object, cache->Open("a"));
  ASSERT_OK_AND_ASSIGN(const auto stream, object->Stream({.block_bytes = kPart, .depth = 2}));
  EXPECT_OK(stream->Next());
  EXPECT_OK(stream->Next());
  EXPECT_THAT(stream->Next(), StatusIs(StatusCode::kUnavailable));
  EXPECT_THAT(stream->Next(), StatusIs(StatusCode::kUnavailable));
}

TEST_F(CacheAheadTest, TheEndOfAStreamWaitsForNoDownload) {
  Meeting started(2), ended(2);
  remote_->on_read = [&](const std::string&, std::int64_t offset) {
    if (offset == kPart) {
      started.Come();
      EXPECT_TRUE(ended.Come());
    }
    return OkStatus();
  };
  const auto cache = Make();
  ASSERT_OK_AND_ASSIGN(const auto object, cache->Open("a"));
  ASSERT_OK_AND_ASSIGN(auto stream, object->Stream({.block_bytes = 100, .depth = 1}));
  EXPECT_OK(stream->Next());
  ASSERT_TRUE(started.Come());
  stream.reset();
  EXPECT_TRUE(ended.Come());  // the download is still under way
}

TEST_F(CacheAheadTest, WhatIsNotKeptIsReadByTheStorage) {
  remote_->Put("a", text_, "");
  const auto cache = Make();
  ASSERT_OK_AND_ASSIGN(const auto object, cache->Open("a"));
  ExpectRead(*object, {{0, 10}, {5000, 10'000}});
  ASSERT_OK_AND_ASSIGN(const auto stream, object->Stream({.block_bytes = 10'000, .depth = 2}));
  EXPECT_EQ(ReadAll(*stream), text_);
  EXPECT_EQ(cache->statistics().pass_through_reads, 2);
  EXPECT_EQ(cache->statistics().downloads, 0);
}

}  // namespace
}  // namespace ait

// SPDX-License-Identifier: Apache-2.0
#include "ait/data/format/shard.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/format/shard_list_internal.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

// Words of a text, each a record; the third is bad if asked for.
class Words final : public ShardReader {
 public:
  Words(const std::string& text, std::vector<RecordExtent> words, std::int64_t bad = -1,
        std::int64_t most_bytes = 100)
      : object_(MemoryObject("words", ByteView::Copy(text))),
        words_(std::move(words)),
        bad_(bad),
        most_bytes_(most_bytes) {}

  std::string_view format() const override { return "words"; }
  const StoredObject& object() const override { return *object_; }
  std::int64_t record_count() const override { return static_cast<std::int64_t>(words_.size()); }
  RecordExtent extent(std::int64_t record) const override {
    return words_[static_cast<std::size_t>(record)];
  }
  std::int64_t max_record_bytes() const override { return most_bytes_; }
  Status Decode(std::int64_t record, const ByteView& bytes, Sample& sample) const override {
    if (record == bad_) return DataLossError("words: record ", record, " is bad");
    sample.fields.assign(1, {.name = "word", .value = bytes, .kind = FieldKind::kText});
    return OkStatus();
  }

 private:
  std::shared_ptr<const StoredObject> object_;
  std::vector<RecordExtent> words_;
  std::int64_t bad_;
  std::int64_t most_bytes_;
};

constexpr char kText[] = "one two  three four";
const std::vector<RecordExtent> kWords = {{0, 3}, {4, 3}, {9, 5}, {15, 4}};

TEST(ShardTest, ReadsARecord) {
  const Words words(kText, kWords);
  ASSERT_OK_AND_ASSIGN(const Sample sample, words.ReadRecord(2));
  EXPECT_EQ(sample.id, 2);
  EXPECT_EQ(sample.Find("word")->value.text(), "three");
  EXPECT_EQ(words.ReadRecord(4).status().code(), StatusCode::kOutOfRange);
  EXPECT_EQ(words.ReadRecord(-1).status().code(), StatusCode::kOutOfRange);
}

TEST(ShardTest, StreamsRecordsWhateverTheSizeOfABlock) {
  const Words words(kText, kWords);
  for (std::int64_t block_bytes = 1; block_bytes < 24; ++block_bytes) {
    ASSERT_OK_AND_ASSIGN(auto stream, words.Stream({.block_bytes = block_bytes}));
    std::vector<std::string> read;
    Sample sample;
    while (true) {
      ASSERT_OK_AND_ASSIGN(const bool is_there, stream->Next(sample));
      if (!is_there) break;
      read.emplace_back(sample.Find("word")->value.text());
    }
    EXPECT_EQ(read, (std::vector<std::string>{"one", "two", "three", "four"})) << block_bytes;
  }
}

TEST(ShardTest, AStreamGoesOnAfterABadRecord) {
  const Words words(kText, kWords, 1);
  ASSERT_OK_AND_ASSIGN(auto stream, words.Stream({.block_bytes = 2}));
  Sample sample;
  ASSERT_OK(stream->Next(sample).status());
  EXPECT_EQ(stream->Next(sample).status().code(), StatusCode::kDataLoss);
  ASSERT_OK(stream->Next(sample).status());
  EXPECT_EQ(sample.id, 2);
}

TEST(ShardTest, AnEmptyShardHasAnEmptyStream) {
  const Words words("", {});
  ASSERT_OK_AND_ASSIGN(auto stream, words.Stream({}));
  Sample sample;
  ASSERT_OK_AND_ASSIGN(const bool is_there, stream->Next(sample));
  EXPECT_FALSE(is_there);
}

TEST(ShardTest, RecordsBeyondTheObjectAreAnError) {
  const Words words("short", {{0, 3}, {3, 100}});
  ASSERT_OK_AND_ASSIGN(auto stream, words.Stream({.block_bytes = 4}));
  Sample sample;
  ASSERT_OK(stream->Next(sample).status());
  EXPECT_EQ(stream->Next(sample).status().code(), StatusCode::kDataLoss);
  EXPECT_EQ(words.ReadRecord(1).status().code(), StatusCode::kOutOfRange);
}

TEST(ShardTest, RecordsThatAreTooLargeAreReadOver) {
  const Words words(kText, kWords, -1, 4);  // "three" has 5
  ASSERT_OK_AND_ASSIGN(auto stream, words.Stream({.block_bytes = 2}));
  Sample sample;
  for (int i = 0; i < 4; ++i) {
    const StatusOr<bool> read = stream->Next(sample);
    EXPECT_EQ(read.status().code(), i == 2 ? StatusCode::kInvalidArgument : StatusCode::kOk) << i;
  }
  EXPECT_EQ(words.ReadRecord(2).status().code(), StatusCode::kInvalidArgument);
  std::array<SampleRead, 4> reads;
  std::vector<SampleRead*> pointers;
  for (SampleRead& read : reads) pointers.push_back(&read);
  internal::ReadRecords(words, std::vector<std::int64_t>{3, 2, 1, 0}, pointers);
  EXPECT_EQ(reads[1].status.code(), StatusCode::kInvalidArgument);
  for (const int i : {0, 2, 3}) EXPECT_OK(reads[static_cast<std::size_t>(i)].status);
  EXPECT_EQ(reads[3].sample.Find("word")->value.text(), "one");
}

}  // namespace
}  // namespace ait

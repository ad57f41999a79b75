// SPDX-License-Identifier: Apache-2.0
#include "ait/data/storage/storage.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "support/status_matchers.h"

namespace ait {
namespace {

std::string Counting(std::size_t size) {
  std::string text(size, '\0');
  for (std::size_t i = 0; i < size; ++i) text[i] = static_cast<char>(i * 7 + i / 251);
  return text;
}

std::shared_ptr<const StoredObject> Object(const std::string& text) {
  return MemoryObject("memory", ByteView::Copy(text), "v1");
}

TEST(StorageTest, AnObjectInMemoryIsReadAnywhere) {
  const auto object = Object("0123456789");
  std::string out(4, ' ');
  ASSERT_OK(object->ReadAt(6, std::as_writable_bytes(std::span(out))));
  EXPECT_EQ(out, "6789");
  ASSERT_OK(object->ReadAt(10, {}));
  EXPECT_EQ(object->ReadAt(7, std::as_writable_bytes(std::span(out))).code(),
            StatusCode::kOutOfRange);
  EXPECT_EQ(object->ReadAt(-1, std::as_writable_bytes(std::span(out))).code(),
            StatusCode::kOutOfRange);
  EXPECT_EQ(object->ReadAt(INT64_MAX, std::as_writable_bytes(std::span(out))).code(),
            StatusCode::kOutOfRange);
}

TEST(StorageTest, EachOfManyReadsHasItsOwnStatus) {
  const auto object = Object("0123456789");
  std::string a(2, ' '), b(2, ' ');
  ObjectRead reads[] = {{8, std::as_writable_bytes(std::span(a)), {}},
                        {9, std::as_writable_bytes(std::span(b)), {}}};
  object->ReadMany(reads);
  EXPECT_OK(reads[0].status);
  EXPECT_EQ(a, "89");
  EXPECT_EQ(reads[1].status.code(), StatusCode::kOutOfRange);
}

TEST(StorageTest, ReadsAWholeObjectUpToALimit) {
  const auto object = Object(Counting(5000));
  ASSERT_OK_AND_ASSIGN(const ByteView whole, ReadWhole(*object));
  EXPECT_EQ(whole.text(), Counting(5000));
  EXPECT_EQ(ReadWhole(*object, 4999).status().code(), StatusCode::kInvalidArgument);
}

// Size of the object, of a block, and the depth.
class StorageStreamTest : public ::testing::TestWithParam<std::tuple<int, int, int>> {};

TEST_P(StorageStreamTest, BlocksFollowEachOtherWithoutAGap) {
  const auto [size, block_bytes, depth] = GetParam();
  const std::string text = Counting(static_cast<std::size_t>(size));
  const auto object = Object(text);
  for (const std::int64_t offset : {0, size / 3, size}) {
    ASSERT_OK_AND_ASSIGN(
        auto stream,
        object->Stream({.offset_bytes = offset, .block_bytes = block_bytes, .depth = depth}));
    std::string read;
    while (true) {
      ASSERT_OK_AND_ASSIGN(const ByteView block, stream->Next());
      if (block.is_empty()) break;
      read += block.text();
    }
    EXPECT_EQ(read, text.substr(static_cast<std::size_t>(offset)));
  }
}

INSTANTIATE_TEST_SUITE_P(Shapes, StorageStreamTest,
                         ::testing::Combine(::testing::Values(0, 1, 4096, 10'001),
                                            ::testing::Values(1'000, 4'096, 1 << 20),
                                            ::testing::Values(0, 1, 3)));

TEST(StorageTest, ABlockStaysAsItIsWhileAViewOfItLives) {
  const std::string text = Counting(100'000);
  const auto object = Object(text);
  for (const int depth : {0, 2}) {
    ASSERT_OK_AND_ASSIGN(auto stream, object->Stream({.block_bytes = 1'000, .depth = depth}));
    std::vector<ByteView> blocks;
    do {
      ASSERT_OK_AND_ASSIGN(ByteView block, stream->Next());
      blocks.push_back(block);
    } while (!blocks.back().is_empty());
    stream.reset();
    std::string read;
    for (const ByteView& block : blocks) read += block.text();
    EXPECT_EQ(read, text);
  }
}

TEST(StorageTest, AStreamMayBeLeftAtAnyTime) {
  const auto object = Object(Counting(100'000));
  for (int taken = 0; taken < 5; ++taken) {
    ASSERT_OK_AND_ASSIGN(auto stream, object->Stream({.block_bytes = 1'000, .depth = 4}));
    for (int i = 0; i < taken; ++i) ASSERT_OK(stream->Next().status());
  }
}

TEST(StorageTest, AStreamRefusesOptionsOutOfRange) {
  const auto object = Object("abc");
  for (const StreamOptions& options : {StreamOptions{.block_bytes = 0}, StreamOptions{.depth = -1},
                                       StreamOptions{.length_bytes = -1}}) {
    EXPECT_EQ(object->Stream(options).status().code(), StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(object->Stream({.offset_bytes = 4}).status().code(), StatusCode::kOutOfRange);
}

// Fails at the third read.
class FailingObject final : public StoredObject {
 public:
  const ObjectInfo& info() const override { return info_; }
  Status ReadAt(std::int64_t offset_bytes, std::span<std::byte>) const override {
    return offset_bytes < 2'000 ? OkStatus() : UnavailableError("no answer");
  }

 private:
  const ObjectInfo info_ = {.url = "failing", .size_bytes = 10'000};
};

TEST(StorageTest, AnErrorOfAStreamComesInItsPlaceAndStays) {
  const FailingObject object;
  for (const int depth : {0, 3}) {
    ASSERT_OK_AND_ASSIGN(auto stream, object.Stream({.block_bytes = 1'000, .depth = depth}));
    ASSERT_OK(stream->Next().status());
    ASSERT_OK(stream->Next().status());
    EXPECT_EQ(stream->Next().status().code(), StatusCode::kUnavailable);
    EXPECT_EQ(stream->Next().status().code(), StatusCode::kUnavailable);
  }
}

TEST(CheckRange, ShowsNoSignatureOfAUrl) {
  const ObjectInfo info = {.url = "https://host/a?X-Amz-Signature=5ecret", .size_bytes = 10};
  EXPECT_EQ(Message(CheckRange(info, 5, 6)).find("5ecret"), std::string::npos);
}

}  // namespace
}  // namespace ait

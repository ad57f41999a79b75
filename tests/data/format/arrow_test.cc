// SPDX-License-Identifier: Apache-2.0
// Files written by pyarrow (testdata/arrow_tables.py).
#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "ait/data/format/formats.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::testing::HasSubstr;

std::string Contents(const std::string& name) {
  std::ifstream in(std::string(AIT_TESTDATA) + "/arrow/" + name, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

StatusOr<std::unique_ptr<ShardReader>> Open(const std::string& name, const std::string& bytes) {
  return OpenShard(MemoryObject(name, ByteView::Copy(bytes)));
}

StatusOr<std::unique_ptr<ShardReader>> Open(const std::string& name) {
  return Open(name, Contents(name));
}

template <typename T>
std::vector<T> Numbers(const Sample& sample, const std::string& name) {
  const SampleField* field = sample.Find(name);
  if (field == nullptr) return {};
  EXPECT_EQ(field->kind, FieldKind::kArray);
  EXPECT_EQ(field->dtype, kDTypeOf<T>);
  std::vector<T> numbers(field->value.size_bytes() / sizeof(T));
  std::memcpy(numbers.data(), field->value.data(), field->value.size_bytes());
  return numbers;
}

std::string Text(const Sample& sample, const std::string& name) {
  const SampleField* field = sample.Find(name);
  return field == nullptr ? "(none)" : std::string(field->value.text());
}

class ArrowTest : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    if (!AIT_HAS_ARROW) GTEST_SKIP() << "built without Apache Arrow";
  }
};

TEST_P(ArrowTest, ARowIsASample) {
  ASSERT_OK_AND_ASSIGN(const auto shard, Open(GetParam()));
  ASSERT_EQ(shard->record_count(), 5);
  ASSERT_OK_AND_ASSIGN(const Sample first, shard->ReadRecord(0));
  EXPECT_EQ(first.key, "0");
  EXPECT_EQ(Numbers<std::int64_t>(first, "label"), std::vector<std::int64_t>{3});
  EXPECT_TRUE(first.Find("label")->shape.empty());
  EXPECT_EQ(Numbers<std::uint8_t>(first, "small"), std::vector<std::uint8_t>{0});
  EXPECT_EQ(Numbers<double>(first, "score"), std::vector<double>{0.5});
  EXPECT_EQ(Text(first, "text"), "a");
  EXPECT_EQ(first.Find("text")->kind, FieldKind::kText);
  EXPECT_EQ(Text(first, "raw"), std::string("\0\1", 2));
  EXPECT_EQ(Text(first, "fixed"), "abc");
  EXPECT_EQ(Numbers<std::int32_t>(first, "tokens"), (std::vector<std::int32_t>{1, 2, 3}));
  EXPECT_EQ(first.Find("tokens")->shape, std::vector<std::int64_t>{3});
  EXPECT_EQ(Numbers<float>(first, "box"), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(first.Find("box")->shape, (std::vector<std::int64_t>{2, 2}));
  EXPECT_EQ(Text(first, "image.bytes"), "jpg0");
  EXPECT_EQ(Text(first, "image.path"), "p0");
  EXPECT_EQ(Text(first, "kind"), "cat");
  EXPECT_EQ(first.Find("flag")->value.bytes()[0], std::byte{1});
}

TEST_P(ArrowTest, ANullIsAFieldThatIsNotThere) {
  ASSERT_OK_AND_ASSIGN(const auto shard, Open(GetParam()));
  ASSERT_OK_AND_ASSIGN(const Sample third, shard->ReadRecord(2));
  EXPECT_EQ(third.Find("label"), nullptr);
  EXPECT_EQ(Text(third, "text"), "grüße");
  ASSERT_OK_AND_ASSIGN(const Sample last, shard->ReadRecord(4));
  EXPECT_EQ(last.Find("raw"), nullptr);
  EXPECT_EQ(Text(last, "kind"), "dog");
  EXPECT_EQ(Numbers<std::int32_t>(last, "tokens"), std::vector<std::int32_t>(20, 10));
}

TEST_P(ArrowTest, AStreamGivesTheSame) {
  ASSERT_OK_AND_ASSIGN(const auto shard, Open(GetParam()));
  ASSERT_OK_AND_ASSIGN(auto stream, shard->Stream({.block_bytes = 100}));
  Sample sample;
  for (int row = 0; row < 5; ++row) {
    ASSERT_OK_AND_ASSIGN(const bool is_there, stream->Next(sample));
    ASSERT_TRUE(is_there);
    EXPECT_EQ(Text(sample, "image.path"), StrCat("p", row));
  }
}

TEST_P(ArrowTest, ADamagedFileIsAnErrorAndNothingElse) {
  const std::string whole = Contents(GetParam());
  for (std::size_t length = 0; length < whole.size(); length += 1 + whole.size() / 97) {
    const auto shard = Open(GetParam(), whole.substr(0, length));
    if (shard.ok()) {
      EXPECT_LE((*shard)->record_count(), 5);
    }
  }
  for (std::size_t at = 0; at < whole.size(); at += 1 + whole.size() / 211) {
    std::string flipped = whole;
    flipped[at] = static_cast<char>(flipped[at] ^ 0x41);
    const auto shard = Open(GetParam(), flipped);
    if (!shard.ok()) {
      EXPECT_NE(shard.status().code(), StatusCode::kInternal);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, ArrowTest,
                         ::testing::Values("table.parquet", "table.arrow", "stream.arrow",
                                           "table.feather"));

TEST(ArrowTypesTest, WhatNoFieldCanHoldIsRefusedByName) {
  if (!AIT_HAS_ARROW) GTEST_SKIP() << "built without Apache Arrow";
  EXPECT_THAT(Open("map.parquet"), StatusIs(StatusCode::kUnimplemented, HasSubstr("'bad'")));
  EXPECT_THAT(Open("ragged.parquet"), StatusIs(StatusCode::kDataLoss, HasSubstr("lists of 1")));
  ASSERT_OK_AND_ASSIGN(const auto empty, Open("empty.parquet"));
  EXPECT_EQ(empty->record_count(), 0);
}

TEST(ArrowTypesTest, WithoutArrowTheErrorSaysWhatToDo) {
  if (AIT_HAS_ARROW) GTEST_SKIP() << "built with Apache Arrow";
  EXPECT_THAT(Open("table.parquet"),
              StatusIs(StatusCode::kUnimplemented, HasSubstr("AIT_ARROW_ROOT")));
}

}  // namespace
}  // namespace ait

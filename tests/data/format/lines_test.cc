// SPDX-License-Identifier: Apache-2.0
// Text, CSV and JSON lines. The files are Python's (testdata/generate.py).
#include "data/format/lines_internal.h"

#include <gtest/gtest.h>

#include <limits>

#include "data/format/shard_test_support.h"

namespace ait {
namespace {

using ::ait::testing::Numbers;
using ::ait::testing::ObjectOf;
using ::ait::testing::OpenTestShard;
using ::ait::testing::ReadAll;
using ::ait::testing::ReadAnything;
using ::ait::testing::StatusIs;
using ::ait::testing::TestData;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Integers = std::vector<std::int64_t>;

// The one field of every sample.
std::vector<std::string> Lines(const std::string& name, const std::string& text,
                               const std::string& field = "text") {
  const auto shard = OpenShard(ObjectOf(name, text));
  EXPECT_OK(shard);
  if (!shard.ok()) return {};
  std::vector<std::string> lines;
  for (const Sample& sample : ReadAll(**shard)) {
    lines.emplace_back(sample.Find(field)->value.text());
  }
  return lines;
}

TEST(LinesTest, ALineOfTextIsASample) {
  EXPECT_THAT(Lines("a.txt", "one\ntwo\n"), ElementsAre("one", "two"));
  EXPECT_THAT(Lines("a.txt", "one\r\n\r\ntwo"), ElementsAre("one", "", "two"));
  EXPECT_THAT(Lines("a.txt", "\xEF\xBB\xBFone\n\n"), ElementsAre("one", ""));
  EXPECT_THAT(Lines("a.txt", "\n"), ElementsAre(""));
  EXPECT_THAT(Lines("a.txt", ""), ElementsAre());
  EXPECT_THAT(Lines("a.txt", "a\rb\n"), ElementsAre("a\rb"));
}

TEST(LinesTest, TextThatIsNotUtf8IsABadSampleOnly) {
  ASSERT_OK_AND_ASSIGN(const auto shard, OpenShard(ObjectOf("a.txt", "ok\n\xff\nok\n")));
  ASSERT_EQ(shard->record_count(), 3);
  EXPECT_OK(shard->ReadRecord(2));
  EXPECT_THAT(shard->ReadRecord(1),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("a.txt, record 1 at byte 3")));
}

TEST(LinesTest, ReadsCsvOfPython) {
  ASSERT_OK_AND_ASSIGN(const auto shard, OpenTestShard("quoted.csv"));
  EXPECT_EQ(shard->format(), "csv");
  const std::vector<Sample> rows = ReadAll(*shard);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].Find("text")->value.text(), "a, b");
  EXPECT_EQ(rows[1].Find("text")->value.text(), "say \"hi\"");
  EXPECT_EQ(rows[2].Find("text")->value.text(), "one\r\ntwo");
  EXPECT_EQ(rows[2].Find("n")->value.text(), "3");
  EXPECT_EQ(rows[3].Find("name")->value.text(), "");
}

TEST(LinesTest, CsvWithoutAHeaderNumbersItsColumns) {
  ASSERT_OK_AND_ASSIGN(const auto shard,
                       OpenShard(ObjectOf("a.csv", "1,2\n\n3,\"\"\n"), {.csv_header = false}));
  const std::vector<Sample> rows = ReadAll(*shard);
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1].Find("column0")->value.text(), "3");
  EXPECT_EQ(rows[1].Find("column1")->value.text(), "");
}

TEST(LinesTest, CsvIsStrict) {
  EXPECT_THAT(OpenShard(ObjectOf("a.csv", "a,a\n")), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(OpenShard(ObjectOf("a.csv", "")), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(OpenShard(ObjectOf("a.csv", "a,b\n1,\"2\n")),
              StatusIs(StatusCode::kDataLoss, HasSubstr("open at its end")));
  for (const char* row : {"1", "1,2,3", "1,\"2\"x", "1,x\"2\""}) {
    ASSERT_OK_AND_ASSIGN(const auto shard, OpenShard(ObjectOf("a.csv", StrCat("a,b\n", row))));
    EXPECT_THAT(shard->ReadRecord(0), StatusIs(StatusCode::kInvalidArgument)) << row;
  }
}

TEST(LinesTest, MembersOfJsonBecomeFields) {
  ASSERT_OK_AND_ASSIGN(const auto shard, OpenTestShard("mixed.jsonl"));
  EXPECT_EQ(shard->format(), "jsonl");
  const std::vector<Sample> samples = ReadAll(*shard);
  ASSERT_EQ(samples.size(), 2u);
  const Sample& first = samples[0];
  EXPECT_EQ(first.Find("text")->value.text(), "\xc3\xa4\n");
  EXPECT_EQ(first.Find("text")->kind, FieldKind::kText);
  EXPECT_EQ(Numbers<std::int64_t>(first.Find("n")), Integers({3}));
  EXPECT_EQ(Numbers<double>(first.Find("x")), std::vector<double>({0.5}));
  EXPECT_EQ(first.Find("b")->dtype, DType::kBool);
  EXPECT_EQ(Numbers<std::int64_t>(first.Find("v")), Integers({1, 2}));
  EXPECT_EQ(first.Find("m")->shape, Integers({2, 1}));
  EXPECT_EQ(first.Find("none"), nullptr);
  EXPECT_EQ(samples[1].Find("o")->value.text(), "{\"a\": [1]}");
  EXPECT_EQ(samples[1].Find("ragged")->value.text(), "[1, \"x\"]");
}

TEST(LinesTest, ObjectsOfJsonStayAsTheyStand) {
  const std::string line =
      R"( { "z" : {"b": 1, "a":[{"x":"}\\"}] , "b":2} ,"big":-9223372036854775808,"n\"":[ 1.5,1e3 ],)"
      R"("m":[1, {"d":18446744073709551616,"c":0}],"e":"","s":"a,:}\"]" } )";
  ASSERT_OK_AND_ASSIGN(const auto shard, OpenShard(ObjectOf("a.jsonl", line)));
  ASSERT_OK_AND_ASSIGN(const Sample sample, shard->ReadRecord(0));
  ASSERT_EQ(sample.fields.size(), 6u);
  EXPECT_EQ(sample.Find("z")->value.text(), R"({"b": 1, "a":[{"x":"}\\"}] , "b":2})");
  EXPECT_EQ(sample.Find("m")->value.text(), R"([1, {"d":18446744073709551616,"c":0}])");
  EXPECT_EQ(Numbers<std::int64_t>(sample.Find("big")),
            Integers({std::numeric_limits<std::int64_t>::min()}));
  EXPECT_EQ(Numbers<double>(sample.Find("n\"")), std::vector<double>({1.5, 1000}));
  EXPECT_EQ(sample.Find("e")->value.text(), "");
  EXPECT_EQ(sample.Find("s")->value.text(), "a,:}\"]");
}

TEST(LinesTest, JsonIsStrict) {
  const std::string deep(100, '[');
  const std::string deep_end(100, ']');
  for (const std::string& line :
       {std::string("{"), std::string("[1]"), std::string("{} x"), std::string("{\"a\":1,\"a\":2}"),
        std::string("{\"a\":NaN}"), std::string("{\"a\":18446744073709551616}"),
        std::string("{\"a\":-9223372036854775809}"),
        std::string("{\"a\":[1,18446744073709551616]}"), std::string("{\"a\":1}\0garbage", 16),
        std::string("\xef\xbb\xbf\xef\xbb\xbf{}"), std::string("{\"a\":1,\"\\u0061\":2}"),
        std::string("{\"a\":18446744073709551615}"), "{\"a\":" + deep + deep_end + "}",
        std::string("{\"a\":\"\xff\"}")}) {
    ASSERT_OK_AND_ASSIGN(const auto shard, OpenShard(ObjectOf("a.jsonl", line)));
    ASSERT_EQ(shard->record_count(), 1);
    EXPECT_THAT(shard->ReadRecord(0), StatusIs(StatusCode::kInvalidArgument)) << line;
  }
  EXPECT_OK(ReadAnything("a.jsonl", "{}\n\n{\"v\":[],\"w\":[[],[]],\"r\":[[1],2]}\n"));
}

TEST(LinesTest, ALineLargerThanAllowedIsRefused) {
  EXPECT_THAT(OpenShard(ObjectOf("a.txt", "123456\n"), {.max_record_bytes = 5}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("max_record_bytes")));
}

TEST(LinesTest, LinesAreFoundWhateverTheBlocks) {
  const std::string text = TestData("quoted.csv");
  const auto object = ObjectOf("a.csv", text);
  ASSERT_OK_AND_ASSIGN(const auto lines,
                       internal::FindLines(*object, {.quotes_hide_line_ends = true}, 100));
  EXPECT_EQ(lines.size(), 5u);
}

}  // namespace
}  // namespace ait

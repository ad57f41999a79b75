// SPDX-License-Identifier: Apache-2.0
#include "ait/data/format/safetensors_header.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "data/format/safetensors_header_internal.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::internal::FormatSafetensorsHeader;
using ::ait::internal::ParseSafetensorsHeader;
using ::ait::internal::SafetensorsHeader;
using ::ait::testing::StatusIs;
using ::testing::HasSubstr;

constexpr std::string_view kGood =
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
    R"("b":{"dtype":"U8","shape":[],"data_offsets":[8,9]}})";

TEST(ParseSafetensorsHeader, ReadsAGoodHeader) {
  ASSERT_OK_AND_ASSIGN(const SafetensorsHeader header, ParseSafetensorsHeader(kGood, 9));
  ASSERT_EQ(header.tensors.size(), 2u);
  EXPECT_EQ(header.tensors[0].name, "a");
  EXPECT_EQ(header.tensors[0].dtype, DType::kFloat32);
  EXPECT_EQ(header.tensors[0].shape, std::vector<std::int64_t>{2});
  EXPECT_EQ(header.tensors[1].begin_bytes, 8);
  EXPECT_TRUE(header.tensors[1].shape.empty());
  EXPECT_EQ(header.metadata, (SafetensorsMetadata{{"format", "pt"}}));
}

TEST(ParseSafetensorsHeader, AcceptsWhatTheReferenceAccepts) {
  const char* const good[] = {
      "{}",
      "{}      ",
      "   {}",  // leading spaces: written by nobody, read by the reference
      R"({"__metadata__":{}})",
      R"({"a":{"data_offsets":[0,0],"shape":[0,1000000000000],"dtype":"F32"}})",  // any key order
      R"({"a":{"dtype":"F32","shape":[0],"data_offsets":[0,0]},)"
      R"("b":{"dtype":"F32","shape":[0],"data_offsets":[0,0]}})",
      R"({"\u00e9\n":{"dtype":"BOOL","shape":[0],"data_offsets":[0,0]}})",
      R"({"":{"dtype":"BF16","shape":[0],"data_offsets":[0,0]}})",
  };
  for (const char* json : good) EXPECT_OK(ParseSafetensorsHeader(json, 0)) << json;
}

struct BadHeader {
  const char* what;
  std::string json;
  std::int64_t data_bytes;
  const char* message;
};

std::string One(const std::string& body) { return "{\"w\":{" + body + "}}"; }

TEST(ParseSafetensorsHeader, EveryKindOfDamageIsNamed) {
  const std::string deep(100000, '[');
  std::string dimensions = "1";
  for (int i = 0; i < 64; ++i) dimensions += ",1";
  const BadHeader cases[] = {
      {"empty", "", 0, "not JSON"},
      {"no JSON", "hello", 0, "not JSON"},
      {"torn", "{\"w\":{\"dtype\":", 0, "not JSON"},
      {"two objects", "{}{}", 0, "not JSON"},
      {"text after", "{} x", 0, "not JSON"},
      {"a zero byte hides the rest", std::string("{}\0{\"w\":1}", 10), 0, "zero byte"},
      {"byte-order mark", "\xEF\xBB\xBF{}", 0, "byte-order mark"},
      {"a comment", "{/* */}", 0, "not JSON"},
      {"not UTF-8", "{\"\xFF\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}", 0,
       "not JSON"},
      {"a list", "[]", 0, "a list, not an object"},
      {"a number", "1", 0, "a number, not an object"},
      {"null", "null", 0, "null, not an object"},
      {"deeply nested", deep, 0, "a list"},
      {"deep objects", R"({"w":{"dtype":{"dtype":{}}}})", 0, "an object where none may stand"},
      {"nested shape", One(R"("dtype":"U8","shape":[[1]],"data_offsets":[0,1])"), 1, "a list"},
      {"tensor is a number", R"({"w":1})", 0, "tensor \"w\" has a number"},
      {"tensor is a string", R"({"w":"U8"})", 0, "tensor \"w\" has a string"},
      {"tensor is a list", R"({"w":[]})", 0, "tensor \"w\" has a list"},
      {"tensor is null", R"({"w":null})", 0, "tensor \"w\" has null"},
      {"the same name twice",
       R"({"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
       R"("w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
       0, "\"w\" is there twice"},
      {"the same name, escaped",
       R"({"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},)"
       R"("\u0077":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}})",
       0, "\"w\" is there twice"},
      {"the same field twice", One(R"("dtype":"U8","dtype":"I8","shape":[0],"data_offsets":[0,0])"),
       0, "\"dtype\" is there twice"},
      {"metadata twice", R"({"__metadata__":{},"__metadata__":{}})", 0, "twice"},
      {"a metadata key twice", R"({"__metadata__":{"a":"1","a":"2"}})", 0, "\"a\" is there twice"},
      {"metadata with a number", R"({"__metadata__":{"a":1}})", 0, "a number where"},
      {"metadata with an object", R"({"__metadata__":{"a":{}}})", 0, "an object where"},
      {"metadata is a string", R"({"__metadata__":"a"})", 0, "a string where"},
      {"unknown dtype", One(R"("dtype":"F33","shape":[0],"data_offsets":[0,0])"), 0,
       "tensor \"w\": its dtype \"F33\" is unknown"},
      {"dtype in small letters", One(R"("dtype":"f32","shape":[0],"data_offsets":[0,0])"), 0,
       "\"f32\" is unknown"},
      {"dtype is a number", One(R"("dtype":32,"shape":[0],"data_offsets":[0,0])"), 0, "a number"},
      {"no dtype", One(R"("shape":[0],"data_offsets":[0,0])"), 0, "must have dtype"},
      {"no shape", One(R"("dtype":"U8","data_offsets":[0,0])"), 0, "must have dtype, shape"},
      {"no offsets", One(R"("dtype":"U8","shape":[0])"), 0, "must have dtype, shape and data"},
      {"one field more", One(R"("dtype":"U8","shape":[0],"data_offsets":[0,0],"x":"y")"), 0,
       "a string where"},
      {"negative size", One(R"("dtype":"U8","shape":[-1],"data_offsets":[0,1])"), 1, "a negative"},
      {"size with a fraction", One(R"("dtype":"U8","shape":[1.0],"data_offsets":[0,1])"), 1,
       "a fraction"},
      {"size over 2^63", One(R"("dtype":"U8","shape":[9223372036854775808],"data_offsets":[0,0])"),
       0, "too large"},
      {"size over 2^64", One(R"("dtype":"U8","shape":[18446744073709551616],"data_offsets":[0,0])"),
       0, "a fraction"},
      {"product overflows to a small number",
       One(R"("dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0])"), 0,
       "more bytes than a file can"},
      {"bytes overflow", One(R"("dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0])"),
       0, "more bytes than a file can"},
      {"too many dimensions",
       One("\"dtype\":\"U8\",\"shape\":[" + dimensions + "],\"data_offsets\":[0,1]"), 1,
       "more than 64 dimensions"},
      {"one offset", One(R"("dtype":"U8","shape":[1],"data_offsets":[0])"), 1, "fewer than two"},
      {"three offsets", One(R"("dtype":"U8","shape":[1],"data_offsets":[0,1,1])"), 1,
       "more than two"},
      {"offsets of the wrong length", One(R"("dtype":"F32","shape":[2],"data_offsets":[0,4])"), 4,
       "\"w\" (F32 [2]) at bytes 0 to 4 should have 8 bytes"},
      {"offsets reversed", One(R"("dtype":"U8","shape":[0],"data_offsets":[1,0])"), 1,
       "should have"},
      {"a hole at the start", One(R"("dtype":"U8","shape":[1],"data_offsets":[1,2])"), 2,
       "leaves a hole"},
      {"a hole in the middle",
       R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
       R"("b":{"dtype":"U8","shape":[1],"data_offsets":[2,3]}})",
       3, "\"b\" (U8 [1]) at bytes 2 to 3 leaves a hole"},
      {"overlap",
       R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
       R"("b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}})",
       3, "\"b\" (U8 [2]) at bytes 1 to 3 overlaps"},
      {"two tensors on the same bytes",
       R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
       R"("b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}})",
       2, "overlaps"},
      {"truncated data", std::string(kGood), 8, "is truncated: its tensors have 9 bytes"},
      {"bytes left over", std::string(kGood), 10, "1 bytes after its last tensor"},
      {"data without a tensor", "{}", 1, "1 bytes after its last tensor"},
  };
  for (const BadHeader& bad : cases) {
    EXPECT_THAT(ParseSafetensorsHeader(bad.json, bad.data_bytes),
                StatusIs(StatusCode::kDataLoss, HasSubstr(bad.message)))
        << bad.what;
  }
  EXPECT_THAT(
      ParseSafetensorsHeader(One(R"("dtype":"F8_E4M3","shape":[0],"data_offsets":[0,0])"), 0),
      StatusIs(StatusCode::kUnimplemented, HasSubstr("F8_E4M3 is not supported")));
}

// Mutants of a good header are refused, or are good headers themselves: what is read then covers
// the data exactly.
TEST(ParseSafetensorsHeader, MutantsAreRefusedOrStillCoverTheData) {
  std::mt19937 random(7);  // the same mutants in every run
  constexpr std::string_view kPieces[] = {"\"", "{", "}", "[", "]", ",", ":", "-", "0", "9", "1e9"};
  int accepted = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string json(kGood);
    for (unsigned edits = 1 + random() % 3; edits > 0; --edits) {
      const std::size_t at = random() % json.size();
      switch (random() % 4) {
        case 0:
          json[at] = static_cast<char>(json[at] ^ (1u << random() % 8));
          break;
        case 1:
          json.erase(at, 1 + random() % 4);
          break;
        case 2:
          json.insert(at, kPieces[random() % std::size(kPieces)]);
          break;
        default:
          json.insert(at, json.substr(random() % json.size(), random() % 20));
      }
      if (json.empty()) json = " ";
    }
    const auto header = ParseSafetensorsHeader(json, 9);
    if (!header.ok()) {
      ASSERT_FALSE(Message(header.status()).empty());
      continue;
    }
    ++accepted;
    std::int64_t covered = 0;
    for (const TensorInfo& tensor : header->tensors) covered += tensor.bytes().value();
    ASSERT_EQ(covered, 9) << json;
  }
  EXPECT_GT(accepted, 0);
}

TEST(FormatSafetensorsHeader, RoundTrips) {
  SafetensorsHeader header;
  header.metadata = {{"b", "2"}, {"a", "1"}};
  header.tensors = {{.name = "x", .dtype = DType::kUInt8, .shape = {3}},
                    {.name = "z", .dtype = DType::kFloat32, .shape = {2, 2}},
                    {.name = "y", .dtype = DType::kFloat32, .shape = {}}};
  ASSERT_OK_AND_ASSIGN(const std::string json, FormatSafetensorsHeader(header));
  const std::string_view text = std::string_view(json).substr(0, json.find_last_not_of(' ') + 1);
  EXPECT_EQ(
      text,
      R"({"__metadata__":{"a":"1","b":"2"},"y":{"dtype":"F32","shape":[],"data_offsets":[0,4]},)"
      R"("z":{"dtype":"F32","shape":[2,2],"data_offsets":[4,20]},)"
      R"("x":{"dtype":"U8","shape":[3],"data_offsets":[20,23]}})");
  EXPECT_EQ(json.size() % 8, 0u);
  ASSERT_OK_AND_ASSIGN(const SafetensorsHeader read, ParseSafetensorsHeader(json, 23));
  EXPECT_EQ(read.metadata, header.metadata);
  ASSERT_EQ(read.tensors.size(), 3u);
  EXPECT_EQ(read.tensors[1].name, "z");
  EXPECT_EQ(read.tensors[1].begin_bytes, header.tensors[1].begin_bytes);
}

TEST(FormatSafetensorsHeader, RefusesWhatCouldNotBeRead) {
  const auto format = [](std::vector<TensorInfo> tensors, SafetensorsMetadata metadata = {}) {
    SafetensorsHeader header{.tensors = std::move(tensors), .metadata = std::move(metadata)};
    return FormatSafetensorsHeader(header);
  };
  EXPECT_THAT(format({{.name = "a"}, {.name = "a"}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("\"a\" is there twice")));
  EXPECT_THAT(format({{.name = "a", .dtype = DType::kInt8}, {.name = "a"}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("twice")));
  EXPECT_THAT(format({{.name = "__metadata__"}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("reserved")));
  EXPECT_THAT(format({{.name = "a", .shape = {-1}}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("tensor \"a\"")));
  EXPECT_THAT(format({{.name = "\xFF"}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("UTF-8")));
  EXPECT_THAT(format({}, {{"a", "\xC3"}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("UTF-8")));
  EXPECT_THAT(format({}, {{"a", std::string(100'000'000, 'x')}}),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("split the tensors")));
}

}  // namespace
}  // namespace ait

// SPDX-License-Identifier: Apache-2.0
// TFRecord files, and the tf.train.Example within.
#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "ait/data/crc32c.h"
#include "ait/data/format/formats.h"
#include "ait/data/format/index.h"
#include "data/data_test_support.h"
#include "data/format/format_test_support.h"
#include "data/format/tf_example_internal.h"
#include "data/format/tfrecord_internal.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::Put;
using ::ait::testing::ReadBytes;
using ::ait::testing::ShownByRecord;
using ::ait::testing::ShownOf;
using ::ait::testing::StatusIs;
using ::ait::testing::TempDir;
using Shown = std::vector<std::string>;

// The checksum of the format, written down here once more.
std::uint32_t Masked(std::string_view text) {
  const std::uint32_t crc = Crc32c(std::as_bytes(std::span(text)));
  return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
}

std::string Record(std::string_view data) {
  std::string bytes;
  Put(bytes, static_cast<std::uint64_t>(data.size()));
  Put(bytes, Masked(bytes));
  bytes += data;
  Put(bytes, Masked(data));
  return bytes;
}

std::string FromHex(std::string_view hex) {
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

std::shared_ptr<const StoredObject> Object(const std::string& bytes) {
  return MemoryObject("x.tfrecord", ByteView::Copy(bytes));
}

StatusOr<Shown> ByTable(const std::string& bytes) {
  AIT_ASSIGN_OR_RETURN(const auto shard, OpenShard(Object(bytes), {.format = "tfrecord"}));
  return ShownByRecord(*shard);
}

StatusOr<Shown> InOnePass(const std::string& bytes, std::int64_t block_bytes = 4096) {
  AIT_ASSIGN_OR_RETURN(
      const auto stream,
      internal::StreamTfrecord(Object(bytes), {}, {.block_bytes = block_bytes}, nullptr));
  return ShownOf(*stream);
}

TEST(TfrecordTest, KnownVectors) {
  EXPECT_EQ(Record(""), FromHex("00000000000000002903980"
                                "7d8ea82a2"));
  EXPECT_EQ(Record("a"), FromHex("01000000000000000175de4161786ee428"));
  ASSERT_OK_AND_ASSIGN(const Shown read, ByTable(FromHex("000000000000000029039807d8ea82a2"
                                                         "01000000000000000175de4161786ee428")));
  EXPECT_EQ(read, (Shown{"0{data=}", "1{data=a}"}));
}

TEST(TfrecordTest, ReadsByTableAndInOnePass) {
  std::string bytes;
  Shown expected;
  std::mt19937 random(3);
  for (int i = 0; i < 100; ++i) {
    const std::string data(random() % 2000, static_cast<char>('a' + i % 26));
    bytes += Record(data);
    expected.push_back(StrCat(i, "{data=", data, "}"));
  }
  ASSERT_OK_AND_ASSIGN(const Shown read, ByTable(bytes));
  EXPECT_EQ(read, expected);
  for (const std::int64_t block_bytes : {1, 7, 100, 1024, 1 << 20}) {
    ASSERT_OK_AND_ASSIGN(const Shown streamed, InOnePass(bytes, block_bytes));
    EXPECT_EQ(streamed, expected);
  }
  ASSERT_OK_AND_ASSIGN(const std::string_view format, FormatOf(*Object(bytes)));
  EXPECT_EQ(format, "tfrecord");
  ASSERT_OK_AND_ASSIGN(const Shown none, ByTable(""));
  EXPECT_TRUE(none.empty());
}

TEST(TfrecordTest, EveryTruncationIsNoticed) {
  const std::string whole = Record("first") + Record("second") + Record("");
  std::vector<std::size_t> borders = {0, Record("first").size(),
                                      Record("first").size() + Record("second").size()};
  for (std::size_t length = 0; length < whole.size(); ++length) {
    const std::string cut = whole.substr(0, length);
    // Between two records nothing tells that more should follow; an index does.
    const bool is_border = std::find(borders.begin(), borders.end(), length) != borders.end();
    EXPECT_EQ(ByTable(cut).ok(), is_border) << length;
    EXPECT_EQ(InOnePass(cut, 8).ok(), is_border) << length;
  }
  ASSERT_OK_AND_ASSIGN(const ShardIndex index, BuildIndex(Object(whole)));
  const auto beside = MemoryObject("i", ByteView::Copy(SerializeIndex(index)));
  EXPECT_OK(OpenShard(Object(whole), {}, beside).status());
  for (const std::size_t border : borders) {
    EXPECT_THAT(OpenShard(Object(whole.substr(0, border)), {.format = "tfrecord"}, beside),
                StatusIs(StatusCode::kDataLoss));
  }
}

TEST(TfrecordTest, EveryFlippedBitIsNoticed) {
  const std::string whole = Record("first") + Record("second");
  for (std::size_t bit = 0; bit < 8 * whole.size(); ++bit) {
    std::string damaged = whole;
    damaged[bit / 8] ^= static_cast<char>(1 << (bit % 8));
    EXPECT_FALSE(ByTable(damaged).ok()) << bit;
    EXPECT_FALSE(InOnePass(damaged).ok()) << bit;
  }
}

TEST(TfrecordTest, ARecordWithBadDataSpoilsNoOther) {
  std::string bytes = Record("first") + Record("second") + Record("third");
  bytes[Record("first").size() + 12] ^= 1;
  ASSERT_OK_AND_ASSIGN(const auto shard, OpenShard(Object(bytes)));
  ASSERT_OK_AND_ASSIGN(const auto stream, shard->Stream({}));
  for (int i = 0; i < 3; ++i) {
    Sample sample;
    const Status status = shard->ReadRecord(i).status();
    EXPECT_EQ(stream->Next(sample).status(), status);
    EXPECT_EQ(status.code(), i == 1 ? StatusCode::kDataLoss : StatusCode::kOk);
    if (i == 1) {
      EXPECT_NE(Message(status).find("x.tfrecord record 1 at byte 21"), std::string::npos)
          << status;
    }
  }
}

TEST(TfrecordTest, AHugeLengthWithAGoodChecksumIsNotBelieved) {
  for (const std::uint64_t length : {std::uint64_t{1} << 62, ~std::uint64_t{0},
                                     ~std::uint64_t{0} - 3, std::uint64_t{13918078099166753393u}}) {
    std::string bytes;
    Put(bytes, length);
    Put(bytes, Masked(bytes));
    bytes += std::string(100, 'x');
    EXPECT_THAT(ByTable(bytes), StatusIs(StatusCode::kDataLoss));
    EXPECT_THAT(InOnePass(bytes), StatusIs(StatusCode::kDataLoss));
  }
  ASSERT_OK_AND_ASSIGN(const auto shard, OpenShard(Object(Record(std::string(5000, 'x'))),
                                                   {.max_record_bytes = 100}));
  EXPECT_THAT(shard->ReadRecord(0), StatusIs(StatusCode::kInvalidArgument));
}

// A file of 64 TiB, zeros but for its beginning.
class HugeObject final : public StoredObject {
 public:
  explicit HugeObject(std::string head) : head_(std::move(head)) {}
  const ObjectInfo& info() const override { return info_; }
  Status ReadAt(std::int64_t offset_bytes, std::span<std::byte> out) const override {
    for (std::size_t i = 0; i < out.size(); ++i) {
      const std::size_t at = static_cast<std::size_t>(offset_bytes) + i;
      out[i] = at < head_.size() ? static_cast<std::byte>(head_[at]) : std::byte{0};
    }
    return OkStatus();
  }

 private:
  const std::string head_;
  const ObjectInfo info_ = {.url = "huge.tfrecord", .size_bytes = std::int64_t{1} << 46};
};

TEST(TfrecordTest, NoMemoryIsMadeForARecordThatIsTooLarge) {
  std::string head;
  Put(head, (std::uint64_t{1} << 46) - 16);
  Put(head, Masked(head));
  ASSERT_OK_AND_ASSIGN(const auto shard, OpenShard(std::make_shared<HugeObject>(head)));
  ASSERT_EQ(shard->record_count(), 1);
  EXPECT_THAT(shard->ReadRecord(0), StatusIs(StatusCode::kInvalidArgument));
  ASSERT_OK_AND_ASSIGN(const auto records, shard->Stream({}));
  Sample sample;
  EXPECT_THAT(records->Next(sample), StatusIs(StatusCode::kInvalidArgument));
}

TEST(TfrecordTest, ARecordThatIsTooLargeSpoilsNoOther) {
  const std::string bytes = Record("a") + Record(std::string(50'000, 'x')) + Record("b");
  for (const std::int64_t block_bytes : {10, 1000, 1 << 20}) {
    ASSERT_OK_AND_ASSIGN(const auto stream,
                         internal::StreamTfrecord(Object(bytes), {.max_record_bytes = 100},
                                                  {.block_bytes = block_bytes}, nullptr));
    Sample sample;
    EXPECT_OK(stream->Next(sample).status());
    EXPECT_THAT(stream->Next(sample), StatusIs(StatusCode::kInvalidArgument));
    ASSERT_OK_AND_ASSIGN(const Shown rest, ShownOf(*stream));
    EXPECT_EQ(rest, (Shown{"2{data=b}"}));
  }
}

TEST(TfrecordTest, WhatIsWrittenIsReadBack) {
  const TempDir directory;
  const std::string path = directory / "x.tfrecord";
  ASSERT_OK_AND_ASSIGN(const auto writer, CreateShard(path, {.format = "tfrecord"}));
  for (const std::string text : {"one", "", "three"}) {
    Sample sample = {.key = "ignored"};
    sample.Set({.name = "data", .value = ByteView::Copy(text)});
    ASSERT_OK(writer->Append(sample));
  }
  EXPECT_EQ(writer->record_count(), 3);
  EXPECT_EQ(writer->size_bytes(), 3 * 16 + 8);
  ASSERT_OK(writer->Commit());
  EXPECT_EQ(ReadBytes(path), Record("one") + Record("") + Record("three"));
  ASSERT_OK_AND_ASSIGN(const ShardIndex built, BuildIndex(Object(ReadBytes(path))));
  EXPECT_EQ(SerializeIndex(built), ReadBytes(IndexPath(path)));
}

// --- tf.train.Example ------------------------------------------------------------------------

template <typename T>
std::vector<T> Numbers(const SampleField* field) {
  std::vector<T> numbers;
  if (field == nullptr) return numbers;
  numbers.resize(field->value.size_bytes() / sizeof(T));
  std::memcpy(numbers.data(), field->value.data(), numbers.size() * sizeof(T));
  return numbers;
}

// As other programs write it: testdata/make_tfrecord.py.
TEST(TfrecordTest, ReadsExamplesThatOthersWrote) {
  const std::string bytes = ReadBytes(AIT_TEST_DATA "/examples.tfrecord");
  ASSERT_OK_AND_ASSIGN(const auto shard,
                       OpenShard(Object(bytes), {.tfrecord_payload = TfrecordPayload::kExample}));
  ASSERT_EQ(shard->record_count(), 3);
  ASSERT_OK_AND_ASSIGN(const Sample sample, shard->ReadRecord(1));
  EXPECT_EQ(sample.key, "1");
  ASSERT_NE(sample.Find("image"), nullptr);
  EXPECT_EQ(sample.Find("image")->value.text(), "bytes 1");
  EXPECT_EQ(Numbers<std::int64_t>(sample.Find("label")),
            (std::vector<std::int64_t>{1, -1, 1 << 20}));
  EXPECT_EQ(Numbers<float>(sample.Find("weight")), (std::vector<float>{0.5f, 1.0f}));
  EXPECT_EQ(sample.Find("weight")->shape, (std::vector<std::int64_t>{2}));
  EXPECT_EQ(sample.Find("weight")->dtype, DType::kFloat32);
  ASSERT_NE(sample.Find("words/1"), nullptr);
  EXPECT_EQ(sample.Find("words/1")->value.text(), "b1");
}

TEST(TfrecordTest, ExamplesAreReadAsTheyWereWritten) {
  Sample sample = {.key = "a/7"};
  sample.Set({.name = "jpg", .value = ByteView::Copy(std::string(300, 'j'))});
  const std::int64_t ints[] = {0, 1, -1, std::numeric_limits<std::int64_t>::min(), 300};
  sample.Set(ArrayField("ints", DType::kInt64, {5}, std::as_bytes(std::span(ints))));
  const float floats[] = {1.5f, -0.0f};
  sample.Set(ArrayField("floats", DType::kFloat32, {2}, std::as_bytes(std::span(floats))));
  const std::int32_t narrow = -7;
  sample.Set(ArrayField("cls", DType::kInt32, {}, std::as_bytes(std::span(&narrow, 1))));
  sample.Set(ArrayField("none", DType::kInt64, {0}, {}));
  ASSERT_OK_AND_ASSIGN(const std::string bytes, internal::EncodeExample(sample));
  Sample read;
  ASSERT_OK(internal::DecodeExample(ByteView::Copy(bytes), read));
  EXPECT_EQ(read.key, "a/7");
  EXPECT_EQ(read.fields.size(), 5u);
  EXPECT_EQ(read.Find("jpg")->value.text(), std::string(300, 'j'));
  EXPECT_EQ(Numbers<std::int64_t>(read.Find("ints")), std::vector<std::int64_t>(ints, ints + 5));
  EXPECT_EQ(Numbers<float>(read.Find("floats")), std::vector<float>(floats, floats + 2));
  EXPECT_EQ(Numbers<std::int64_t>(read.Find("cls")), (std::vector<std::int64_t>{-7}));
  EXPECT_EQ(Numbers<std::int64_t>(read.Find("none")), std::vector<std::int64_t>{});
  for (std::size_t length = 1; length < bytes.size(); ++length) {
    EXPECT_FALSE(internal::DecodeExample(ByteView::Copy(bytes.substr(0, length)), read).ok())
        << length;
  }
}

TEST(TfrecordTest, ExamplesWithFieldsOneByOne) {
  // Features { feature { key: "f" value { float_list { value: 1 value: 2 } } } }, not packed, and
  // fields that are not known.
  const std::string list = FromHex(
      "0d0000803f"
      "0d00000040");
  const auto message = [](char field, const std::string& body) {
    return std::string{static_cast<char>(field << 3 | 2), static_cast<char>(body.size())} + body;
  };
  const std::string entry =
      message(1, "f") + message(2, message(2, list)) + message(9, "unknown") + FromHex("5001");
  Sample read;
  ASSERT_OK(internal::DecodeExample(ByteView::Copy(message(1, message(1, entry))), read));
  EXPECT_EQ(Numbers<float>(read.Find("f")), (std::vector<float>{1, 2}));
  const std::string ints = message(1, "i") + message(2, message(3, FromHex("0801"
                                                                           "0802"
                                                                           "0a020304")));
  ASSERT_OK(internal::DecodeExample(ByteView::Copy(message(1, message(1, ints))), read));
  EXPECT_EQ(Numbers<std::int64_t>(read.Find("i")), (std::vector<std::int64_t>{1, 2, 3, 4}));
  EXPECT_THAT(internal::DecodeExample(
                  ByteView::Copy(message(1, message(1, ints) + message(1, ints))), read),
              StatusIs(StatusCode::kInvalidArgument));
  const std::string two = message(1, "i") + message(2, message(3, "") + message(1, ""));
  EXPECT_THAT(internal::DecodeExample(ByteView::Copy(message(1, message(1, two))), read),
              StatusIs(StatusCode::kInvalidArgument));
  for (const char* bad :
       {"08", "0affffffffffffffffff01", "0b", "00", "0a05", "0f00", "0affffffffffffffffff7f"}) {
    EXPECT_THAT(internal::DecodeExample(ByteView::Copy(FromHex(bad)), read),
                StatusIs(StatusCode::kDataLoss))
        << bad;
  }
}

TEST(TfrecordTest, WhatAnExampleCannotHoldIsRefused) {
  const TempDir directory;
  ASSERT_OK_AND_ASSIGN(const auto writer,
                       CreateShard(directory / "x.tfrecord", {.format = "tfrecord"}));
  const double number = 1;
  Sample sample = {.key = "a"};
  sample.Set(ArrayField("d", DType::kFloat64, {1}, std::as_bytes(std::span(&number, 1))));
  EXPECT_THAT(writer->Append(sample), StatusIs(StatusCode::kInvalidArgument));
  sample.fields = {ArrayField("d", DType::kUInt8, {2, 4}, std::as_bytes(std::span(&number, 1)))};
  EXPECT_THAT(writer->Append(sample), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_EQ(writer->record_count(), 0);
}

}  // namespace
}  // namespace ait

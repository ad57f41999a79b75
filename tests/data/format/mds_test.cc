// SPDX-License-Identifier: Apache-2.0
// MDS. The files are mosaicml-streaming's (testdata/generate.py), of seven samples.
#include "ait/data/format/mds.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "data/format/format_entry_internal.h"
#include "data/format/shard_test_support.h"

namespace ait {
namespace {

using ::ait::testing::Describe;
using ::ait::testing::DirectoryStorage;
using ::ait::testing::Numbers;
using ::ait::testing::ObjectOf;
using ::ait::testing::OpenTestShard;
using ::ait::testing::ReadAll;
using ::ait::testing::ReadBytes;
using ::ait::testing::StatusIs;
using ::ait::testing::TempDir;
using ::ait::testing::TestDamage;
using ::ait::testing::TestData;
using ::ait::testing::TestDataPath;
using ::ait::testing::WriteBytes;
using ::testing::HasSubstr;

using Integers = std::vector<std::int64_t>;

// What generate.py wrote as sample i.
void ExpectSample(const Sample& sample, int i) {
  EXPECT_EQ(Numbers<std::int64_t>(sample.Find("a")), Integers({i - 2}));
  EXPECT_EQ(sample.Find("b")->value.text(), std::string(static_cast<std::size_t>(i), char(i)));
  std::string text;
  for (int j = 0; j < i; ++j) text += "\xc3\xa4";
  EXPECT_EQ(sample.Find("s")->value.text(), text);
  EXPECT_EQ(sample.Find("s")->kind, FieldKind::kText);
  EXPECT_EQ(Numbers<std::uint8_t>(sample.Find("u8"))[0], i);
  EXPECT_EQ(Numbers<std::int16_t>(sample.Find("i16"))[0], -i);
  EXPECT_EQ(Numbers<std::int64_t>(sample.Find("u64"))[0], i);
  EXPECT_EQ(sample.Find("h")->dtype, DType::kFloat16);
  EXPECT_EQ(Numbers<float>(sample.Find("f"))[0], static_cast<float>(i) / 4);
  EXPECT_EQ(Numbers<double>(sample.Find("d"))[0], i / 8.0);
  EXPECT_EQ(sample.Find("nd")->shape, Integers({1, i + 1}));
  EXPECT_EQ(Numbers<std::uint16_t>(sample.Find("nd")).back(), i);
  EXPECT_EQ(Numbers<std::int32_t>(sample.Find("nt")),
            std::vector<std::int32_t>(static_cast<std::size_t>(i) + 1, i));
  EXPECT_EQ(sample.Find("ns")->shape, Integers({2, 3}));
  EXPECT_EQ(Numbers<float>(sample.Find("ns")), std::vector<float>(6, static_cast<float>(i)));
  EXPECT_EQ(sample.Find("j")->value.text(), StrCat("{\"i\": [", i, ", null]}"));
  EXPECT_EQ(sample.Find("jpg")->value.text(), std::string("\xff\xd8") + char(i));
  EXPECT_EQ(sample.fields.size(), 15u);
}

StatusOr<std::shared_ptr<const SampleSource>> OpenCollection(const std::string& directory) {
  const std::vector<ObjectInfo> objects = DirectoryStorage::Objects(directory);
  for (const internal::CollectionFormat* format : internal::CollectionFormats()) {
    if (format->name == "mds-index" && format->match(objects)) {
      return format->open(std::make_shared<DirectoryStorage>(), directory, objects, {});
    }
  }
  return NotFoundError("no such format");
}

TEST(MdsTest, ReadsShardsOfEveryEncoding) {
  int next = 0;
  for (const char* name : {"mds_plain/shard.00000.mds", "mds_plain/shard.00001.mds"}) {
    ASSERT_OK_AND_ASSIGN(const auto shard, OpenTestShard(name));
    EXPECT_EQ(shard->format(), "mds");
    for (const Sample& sample : ReadAll(*shard)) ExpectSample(sample, next++);
  }
  EXPECT_EQ(next, 7);
}

TEST(MdsTest, ReadsDataSetsCompressedOrNot) {
  for (const char* name : {"mds_plain", "mds_zstd", "mds_gz"}) {
    ASSERT_OK_AND_ASSIGN(const auto source, OpenCollection(TestDataPath(name)));
    ASSERT_EQ(source->sample_count(), 7);
    EXPECT_EQ(source->block_begins().size(), 2u);
    const std::vector<Sample> samples = ReadAll(*source);
    for (int i = 0; i < 7; ++i) ExpectSample(samples[static_cast<std::size_t>(i)], i);
    SampleRead beyond = {.id = 7};
    source->Read(std::span(&beyond, 1));
    EXPECT_EQ(beyond.status.code(), StatusCode::kOutOfRange);
  }
}

TEST(MdsTest, DamageIsAnError) { TestDamage("mds_plain/shard.00001.mds"); }

TEST(MdsTest, PickleIsRefusedByName) {
  EXPECT_THAT(OpenTestShard("mds_pickle/shard.00000.mds"),
              StatusIs(StatusCode::kUnimplemented, HasSubstr("\"p\"")));
  EXPECT_THAT(OpenCollection(TestDataPath("mds_pickle")), StatusIs(StatusCode::kUnimplemented));
}

TEST(MdsTest, AShardThatIsNotAsItsIndexSaysIsAnError) {
  for (const bool is_longer : {false, true}) {
    const TempDir directory;
    std::filesystem::copy(TestDataPath("mds_plain"), directory.path());
    const std::string path = directory.path() + "/shard.00000.mds";
    std::string bytes = ReadBytes(path);
    if (is_longer) {
      bytes += "x";
    } else {
      bytes[bytes.size() - 1] ^= 1;  // only its hash tells
    }
    WriteBytes(path, bytes);
    ASSERT_OK_AND_ASSIGN(const auto source, OpenCollection(directory.path()));
    std::vector<SampleRead> reads = {{.id = 0}, {.id = 6}};
    source->Read(reads);
    EXPECT_THAT(reads[0].status, StatusIs(StatusCode::kDataLoss, HasSubstr("shard.00000.mds")));
    EXPECT_OK(reads[1].status);
  }
}

TEST(MdsTest, AnIndexThatLeadsElsewhereIsRefused) {
  const TempDir directory;
  std::filesystem::copy(TestDataPath("mds_plain"), directory.path());
  const std::string path = directory.path() + "/index.json";
  std::string text = ReadBytes(path);
  text.replace(text.find("shard.00000.mds"), 15, "../../../shadow");
  WriteBytes(path, text);
  EXPECT_THAT(OpenCollection(directory.path()), StatusIs(StatusCode::kDataLoss));
  WriteBytes(path, text.substr(0, text.size() / 2));
  EXPECT_THAT(OpenCollection(directory.path()), StatusIs(StatusCode::kDataLoss));
}

std::vector<Sample> Samples() {
  std::vector<Sample> samples;
  for (int i = 0; i < 5; ++i) {
    const std::vector<float> numbers(static_cast<std::size_t>(i) + 1, 0.5F);
    const std::int32_t label = i;
    Sample sample = {.key = StrCat("key", i)};
    sample.Set({.name = "text", .value = ByteView::Copy("\xc3\xa4"), .kind = FieldKind::kText});
    sample.Set(
        {.name = "raw", .value = ByteView::Copy(std::string(static_cast<std::size_t>(i), 'j'))});
    sample.Set(ArrayField("x", DType::kFloat32, {1, i + 1}, std::as_bytes(std::span(numbers))));
    sample.Set(ArrayField("label", DType::kInt32, {}, std::as_bytes(std::span(&label, 1))));
    samples.push_back(std::move(sample));
  }
  return samples;
}

TEST(MdsTest, WhatIsWrittenIsReadAgain) {
  const TempDir directory;
  const std::string path = directory.path() + "/shard.00000.mds";
  ASSERT_OK_AND_ASSIGN(const auto writer, CreateShard(path, {.format = "mds"}));
  for (const Sample& sample : Samples()) ASSERT_OK(writer->Append(sample));
  const std::int64_t size = writer->size_bytes();
  ASSERT_OK(writer->Commit());
  EXPECT_EQ(static_cast<std::int64_t>(ReadBytes(path).size()), size);
  const std::vector<std::string> names = {"shard.00000.mds"};
  ASSERT_OK(WriteMdsIndex(directory.path(), names));
  EXPECT_THAT(WriteMdsIndex(directory.path(), std::vector<std::string>{"../x.mds"}),
              StatusIs(StatusCode::kInvalidArgument));
  ASSERT_OK_AND_ASSIGN(const auto source, OpenCollection(directory.path()));
  const std::vector<Sample> samples = ReadAll(*source);
  ASSERT_EQ(samples.size(), 5u);
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const Sample expected = Samples()[i];
    EXPECT_EQ(samples[i].key, expected.key);
    for (const SampleField& field : expected.fields) {
      const SampleField* read = samples[i].Find(field.name);
      ASSERT_NE(read, nullptr) << field.name;
      EXPECT_EQ(read->value.text(), field.value.text());
      EXPECT_EQ(read->kind, field.kind);
      EXPECT_EQ(read->shape, field.shape);
      EXPECT_EQ(read->dtype, field.dtype);
    }
    EXPECT_EQ(samples[i].fields.size(), 4u);
  }
}

// The peer's own shard, decoded and written again, is the same bytes but for its configuration.
TEST(MdsTest, WritesTheBytesOfThePeer) {
  const TempDir directory;
  const std::string path = directory.path() + "/copy.mds";
  const std::string name = "mds_plain/shard.00000.mds";
  ASSERT_OK_AND_ASSIGN(const auto shard, OpenTestShard(name));
  ASSERT_OK_AND_ASSIGN(const auto writer, CreateShard(path, {.format = "mds"}));
  for (Sample sample : ReadAll(*shard)) {
    sample.key.clear();
    // Of these columns the writer would choose another encoding.
    for (const char* other : {"ns", "nt", "u64", "j"}) sample.Remove(other);
    ASSERT_OK(writer->Append(sample));
  }
  ASSERT_OK(writer->Commit());
  ASSERT_OK_AND_ASSIGN(const auto copy, OpenShard(ObjectOf("copy.mds", ReadBytes(path))));
  ASSERT_EQ(copy->record_count(), shard->record_count());
  for (std::int64_t i = 0; i < copy->record_count(); ++i) {
    ASSERT_OK_AND_ASSIGN(Sample before, shard->ReadRecord(i));
    ASSERT_OK_AND_ASSIGN(const Sample after, copy->ReadRecord(i));
    for (const char* other : {"ns", "nt", "u64", "j"}) before.Remove(other);
    EXPECT_EQ(Describe(before), Describe(after));
  }
}

TEST(MdsTest, TheWriterRefusesWhatTheFormatCannotHold) {
  const TempDir directory;
  ASSERT_OK_AND_ASSIGN(const auto writer,
                       CreateShard(directory.path() + "/a.mds", {.format = "mds"}));
  ASSERT_OK(writer->Append(Samples()[0]));
  Sample other = Samples()[1];
  other.Remove("text");
  EXPECT_THAT(writer->Append(other), StatusIs(StatusCode::kInvalidArgument, HasSubstr("key1")));
  other = Samples()[1];
  other.Find("text")->value = ByteView::Copy("\xff");
  EXPECT_THAT(writer->Append(other), StatusIs(StatusCode::kInvalidArgument, HasSubstr("UTF-8")));
  other = Samples()[1];
  other.Set(ArrayField("x", DType::kBFloat16, {1}, std::vector<std::byte>(2)));
  EXPECT_THAT(writer->Append(other), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_EQ(writer->record_count(), 1);
  ASSERT_OK(writer->Append(Samples()[2]));
  ASSERT_OK(writer->Commit());
}

// Opt-in: AIT_TEST_PYTHON names a Python that has mosaicml-streaming.
TEST(MdsTest, ThePeerReadsWhatWeWrite) {
  const char* python = std::getenv("AIT_TEST_PYTHON");
  if (python == nullptr) {
    GTEST_SKIP() << "set AIT_TEST_PYTHON to a Python with mosaicml-streaming";
  }
  const TempDir directory;
  ASSERT_OK_AND_ASSIGN(const auto writer,
                       CreateShard(directory.path() + "/shard.00000.mds", {.format = "mds"}));
  for (const Sample& sample : Samples()) ASSERT_OK(writer->Append(sample));
  ASSERT_OK(writer->Commit());
  ASSERT_OK(WriteMdsIndex(directory.path(), std::vector<std::string>{"shard.00000.mds"}));
  const std::string command =
      StrCat("'", python, "' '", TestDataPath("peer_reads.py"), "' mds '", directory.path(), "'");
  const int result = std::system(command.c_str());
  if (WIFEXITED(result) && WEXITSTATUS(result) == 77) {
    GTEST_SKIP() << "that Python has no mosaicml-streaming";
  }
  EXPECT_EQ(result, 0);
}

}  // namespace
}  // namespace ait

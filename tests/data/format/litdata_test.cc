// SPDX-License-Identifier: Apache-2.0
// LitData chunks, and token files whose documents are samples. The chunks are litdata's
// (testdata/generate.py); the token files are put together from their descriptions.
#include <gtest/gtest.h>

#include <filesystem>

#include "data/format/format_entry_internal.h"
#include "data/format/shard_test_support.h"

namespace ait {
namespace {

using ::ait::testing::DirectoryStorage;
using ::ait::testing::Numbers;
using ::ait::testing::OpenTestShard;
using ::ait::testing::ReadAll;
using ::ait::testing::ReadBytes;
using ::ait::testing::StatusIs;
using ::ait::testing::TempDir;
using ::ait::testing::TestDataPath;
using ::ait::testing::WriteBytes;

using Integers = std::vector<std::int64_t>;

StatusOr<std::shared_ptr<const SampleSource>> Open(const std::string& directory) {
  const std::vector<ObjectInfo> objects = DirectoryStorage::Objects(directory);
  for (const internal::CollectionFormat* format : internal::CollectionFormats()) {
    if (format->match(objects)) {
      return format->open(std::make_shared<DirectoryStorage>(), directory, objects, {});
    }
  }
  return NotFoundError("no format matches ", directory);
}

TEST(LitDataTest, ReadsEveryLeaf) {
  for (const char* name : {"litdata", "litdata_zstd"}) {
    ASSERT_OK_AND_ASSIGN(const auto source, Open(TestDataPath(name)));
    EXPECT_EQ(source->block_begins().size(), 3u);
    const std::vector<Sample> samples = ReadAll(*source);
    ASSERT_EQ(samples.size(), 5u);
    for (int i = 0; i < 5; ++i) {
      const Sample& sample = samples[static_cast<std::size_t>(i)];
      EXPECT_EQ(Numbers<std::int64_t>(sample.Find("index")), Integers({i}));
      EXPECT_EQ(sample.Find("text")->value.text(), std::string(static_cast<std::size_t>(i), 't'));
      EXPECT_EQ(Numbers<double>(sample.Find("x"))[0], i / 2.0);
      EXPECT_EQ(sample.Find("flag")->value.text(), std::string(1, i % 2 == 0 ? '\1' : '\0'));
      EXPECT_EQ(sample.Find("raw")->value.text(), std::string(1, static_cast<char>(i)));
      EXPECT_EQ(sample.Find("array")->shape, Integers({2, i + 1}));
      EXPECT_EQ(Numbers<float>(sample.Find("array")).back(), static_cast<float>(i));
      EXPECT_EQ(Numbers<std::int64_t>(sample.Find("line")).back(), i);
      EXPECT_EQ(sample.Find("tensor")->shape, Integers({1, 2}));
      EXPECT_EQ(Numbers<std::int32_t>(sample.Find("tensor")), std::vector<std::int32_t>({i, i}));
      EXPECT_EQ(Numbers<std::int64_t>(sample.Find("vector")).size(),
                static_cast<std::size_t>(i) + 1);
    }
  }
}

TEST(LitDataTest, LeavesOfAListAreNumbered) {
  ASSERT_OK_AND_ASSIGN(const auto source, Open(TestDataPath("litdata_list")));
  const std::vector<Sample> samples = ReadAll(*source);
  ASSERT_EQ(samples.size(), 3u);
  EXPECT_EQ(Numbers<std::int64_t>(samples[2].Find("0")), Integers({2}));
  EXPECT_EQ(samples[2].Find("1")->value.text(), "b2");
}

TEST(LitDataTest, ATruncatedChunkAndIndexAreErrors) {
  for (const char* name : {"chunk-0-1.bin", "index.json"}) {
    const std::string good = ReadBytes(TestDataPath(StrCat("litdata/", name)));
    for (std::size_t size = 0; size < good.size(); size += 3) {
      const TempDir directory;
      std::filesystem::copy(TestDataPath("litdata"), directory.path());
      WriteBytes(directory.path() + "/" + name, good.substr(0, size));
      const auto source = Open(directory.path());
      if (!source.ok()) continue;
      std::vector<SampleRead> reads = {{.id = 2}, {.id = 4}};
      (*source)->Read(reads);
      EXPECT_EQ(reads[0].status.code(), StatusCode::kDataLoss) << name << " cut to " << size;
      EXPECT_OK(reads[1].status);
    }
  }
}

TEST(DocumentsTest, DocumentsOfMegatronAreSamples) {
  ASSERT_OK_AND_ASSIGN(const auto source, Open(TestDataPath("megatron")));
  EXPECT_EQ(Integers(source->block_begins().begin(), source->block_begins().end()),
            Integers({0, 3}));
  const std::vector<Sample> samples = ReadAll(*source);
  ASSERT_EQ(samples.size(), 4u);
  using Tokens = std::vector<std::uint16_t>;
  EXPECT_EQ(Numbers<std::uint16_t>(samples[0].Find("tokens")), Tokens({1, 2, 3}));
  EXPECT_EQ(Numbers<std::uint16_t>(samples[1].Find("tokens")), Tokens({4, 5, 6}));
  EXPECT_EQ(Numbers<std::uint16_t>(samples[2].Find("tokens")), Tokens());
  EXPECT_EQ(Numbers<std::uint16_t>(samples[3].Find("tokens")), Tokens({70, 80}));
}

TEST(DocumentsTest, DocumentsOfLlmcBeginAtTheEndOfText) {
  ASSERT_OK_AND_ASSIGN(const auto shard, OpenTestShard("gpt2.bin"));
  EXPECT_EQ(shard->format(), "llmc");
  ASSERT_EQ(shard->record_count(), 3);
  std::vector<Sample> samples;
  for (std::int64_t i = 0; i < 3; ++i) {
    ASSERT_OK_AND_ASSIGN(Sample sample, shard->ReadRecord(i));
    samples.push_back(std::move(sample));
  }
  EXPECT_EQ(Numbers<std::uint16_t>(samples[1].Find("tokens")),
            std::vector<std::uint16_t>({50256, 13}));
  ::ait::testing::TestDamage("gpt2.bin");
}

TEST(DocumentsTest, ATruncatedPairIsAnError) {
  for (const char* name : {"part0.idx", "part0.bin"}) {
    const std::string good = ReadBytes(TestDataPath(StrCat("megatron/", name)));
    for (std::size_t size = 0; size < good.size(); ++size) {
      const TempDir directory;
      std::filesystem::copy(TestDataPath("megatron"), directory.path());
      WriteBytes(directory.path() + "/" + name, good.substr(0, size));
      EXPECT_THAT(Open(directory.path()), StatusIs(StatusCode::kDataLoss))
          << name << " cut to " << size;
    }
  }
}

}  // namespace
}  // namespace ait

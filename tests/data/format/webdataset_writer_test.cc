// SPDX-License-Identifier: Apache-2.0
// Tars that are written: the bytes of GNU tar, read back as they were, durable, with an index.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "ait/data/format/formats.h"
#include "ait/data/format/index.h"
#include "data/data_test_support.h"
#include "data/format/format_test_support.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

namespace fs = std::filesystem;
using ::ait::testing::ReadBytes;
using ::ait::testing::StatusIs;
using ::ait::testing::TempDir;

Sample MakeSample(std::string key, std::vector<std::pair<std::string, std::string>> fields) {
  Sample sample = {.key = std::move(key)};
  for (auto& [name, value] : fields) sample.Set({.name = name, .value = ByteView::Copy(value)});
  return sample;
}

std::shared_ptr<const StoredObject> Object(const std::string& path) {
  return MemoryObject(path, ByteView::Copy(ReadBytes(path)));
}

const std::vector<Sample>& Samples() {
  static const std::vector<Sample> samples = {
      MakeSample("a/0", {{"jpg", std::string(3000, 'j')}, {"cls", "7"}}),
      MakeSample("a/1", {{"jpg", ""}, {"seg.png", std::string(512, 'p')}}),
      MakeSample("gr\xc3\xbc\xc3\x9f", {{"txt", "x"}}),
      MakeSample(std::string(120, 'd') + "/" + std::string(80, 'n'), {{"txt", "prefix"}}),
      MakeSample("zz/" + std::string(130, 'n'), {{"txt", "pax"}}),
  };
  return samples;
}

Status Write(const std::string& path, const std::vector<Sample>& samples,
             const ShardWriterOptions& options = {}) {
  AIT_ASSIGN_OR_RETURN(const auto writer, CreateShard(path, options));
  for (const Sample& sample : samples) AIT_RETURN_IF_ERROR(writer->Append(sample));
  const std::int64_t size = writer->size_bytes();
  AIT_RETURN_IF_ERROR(writer->Commit());
  EXPECT_EQ(static_cast<std::int64_t>(fs::file_size(path)), size);
  return OkStatus();
}

TEST(WebDatasetWriterTest, WhatIsWrittenIsReadBack) {
  const TempDir directory;
  const std::string path = (directory / "x.tar");
  ASSERT_OK(Write(path, Samples()));
  ASSERT_OK_AND_ASSIGN(const auto shard, OpenShard(Object(path), {.check = ShardCheck::kContents},
                                                   Object(IndexPath(path))));
  EXPECT_EQ(shard->format(), "webdataset");
  ASSERT_EQ(shard->record_count(), static_cast<std::int64_t>(Samples().size()));
  for (std::size_t i = 0; i < Samples().size(); ++i) {
    ASSERT_OK_AND_ASSIGN(const Sample sample, shard->ReadRecord(static_cast<std::int64_t>(i)));
    EXPECT_EQ(sample.key, Samples()[i].key);
    ASSERT_EQ(sample.fields.size(), Samples()[i].fields.size());
    for (const SampleField& field : Samples()[i].fields) {
      ASSERT_NE(sample.Find(field.name), nullptr) << field.name;
      EXPECT_EQ(sample.Find(field.name)->value.text(), field.value.text());
    }
  }
}

TEST(WebDatasetWriterTest, TheIndexIsTheOneOfTheFile) {
  const TempDir directory;
  const std::string path = (directory / "x.tar");
  ASSERT_OK(Write(path, Samples()));
  ASSERT_OK_AND_ASSIGN(const ShardIndex built, BuildIndex(Object(path)));
  EXPECT_EQ(SerializeIndex(built), ReadBytes(IndexPath(path)));
}

TEST(WebDatasetWriterTest, TheSameSamplesGiveTheSameBytes) {
  const TempDir directory;
  ASSERT_OK(Write((directory / "a.tar"), Samples()));
  ASSERT_OK(Write((directory / "b.tar"), Samples()));
  EXPECT_EQ(ReadBytes((directory / "a.tar")), ReadBytes((directory / "b.tar")));
}

// GNU tar is there wherever Debian is.
class GnuTarTest : public ::testing::TestWithParam<const char*> {};

TEST_P(GnuTarTest, WritesTheSameBytes) {
  const TempDir directory;
  const std::string format = GetParam();
  std::vector<Sample> samples(Samples().begin(), Samples().begin() + 3);
  if (format == "ustar") samples.insert(samples.begin() + 2, Samples()[3]);
  if (format == "posix") samples[2] = Samples()[4];  // non-ASCII names become pax records there
  const std::string files = (directory / "files");
  for (const Sample& sample : samples) {
    for (const SampleField& field : sample.fields) {
      const std::string path = files + "/" + sample.key + "." + field.name;
      fs::create_directories(fs::path(path).parent_path());
      testing::WriteBytes(path, field.value.text());
    }
  }
  std::string names;
  for (const Sample& sample : samples) {
    std::vector<std::string> fields;
    for (const SampleField& field : sample.fields) fields.push_back(field.name);
    std::sort(fields.begin(), fields.end());
    for (const std::string& field : fields) names += StrCat(sample.key, ".", field, "\n");
  }
  testing::WriteBytes((directory / "names"), names);
  const std::string command =
      StrCat("cd ", files, " && LC_ALL=C tar --format=", format,
             " --pax-option=delete=atime,delete=ctime,delete=mtime"
             " --owner=0 --group=0 --numeric-owner --mode=644 --mtime=@1234567890 -cf ",
             (directory / "gnu.tar"), " -T ", (directory / "names"));
  std::string shell = command;
  if (format != "posix") {
    const std::size_t option = shell.find(" --pax-option=delete=atime,delete=ctime,delete=mtime");
    shell.erase(option,
                std::string_view(" --pax-option=delete=atime,delete=ctime,delete=mtime").size());
  }
  ASSERT_EQ(std::system(shell.c_str()), 0) << shell;
  ASSERT_OK(Write((directory / "x.tar"), samples, {.modification_time = 1234567890}));
  const std::string ours = ReadBytes((directory / "x.tar"));
  std::string theirs = ReadBytes((directory / "gnu.tar"));
  if (format == "gnu") {
    // The same header but for the magic, and device numbers that are empty.
    ASSERT_OK_AND_ASSIGN(const auto shard, OpenShard(Object((directory / "gnu.tar"))));
    EXPECT_EQ(shard->record_count(), 3);
    return;
  }
  EXPECT_TRUE(ours == theirs);
}

INSTANTIATE_TEST_SUITE_P(Formats, GnuTarTest, ::testing::Values("ustar", "posix", "gnu"));

TEST(WebDatasetWriterTest, WhatWouldNotBeReadBackIsRefused) {
  const TempDir directory;
  ASSERT_OK_AND_ASSIGN(const auto writer, CreateShard((directory / "x.tar")));
  const auto refused = [&](const std::string& key, const std::string& field) {
    EXPECT_THAT(writer->Append(MakeSample(key, {{field, "x"}})),
                StatusIs(StatusCode::kInvalidArgument))
        << key << " " << field;
  };
  refused("", "jpg");
  refused("a.b", "jpg");
  refused("a", "x/y");
  refused("a", "JPG");
  refused("__meta__/a", "jpg");
  refused(std::string("a\0", 2), "jpg");
  EXPECT_THAT(writer->Append(MakeSample("none", {})), StatusIs(StatusCode::kInvalidArgument));
  Sample twice = MakeSample("twice", {{"a", "x"}});
  twice.fields.push_back(twice.fields[0]);
  EXPECT_THAT(writer->Append(twice), StatusIs(StatusCode::kInvalidArgument));
  ASSERT_OK(writer->Append(MakeSample("a", {{"jpg", "x"}})));
  EXPECT_THAT(writer->Append(MakeSample("a", {{"cls", "x"}})),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_EQ(writer->record_count(), 1);
  ASSERT_OK(writer->Commit());
  ASSERT_OK_AND_ASSIGN(const auto shard, OpenShard(Object((directory / "x.tar"))));
  EXPECT_EQ(shard->record_count(), 1);
}

TEST(WebDatasetWriterTest, NothingHasItsNameBeforeTheCommit) {
  const TempDir directory;
  {
    ASSERT_OK_AND_ASSIGN(const auto writer, CreateShard((directory / "x.tar")));
    ASSERT_OK(writer->Append(Samples()[0]));
    EXPECT_FALSE(fs::exists((directory / "x.tar")));
  }
  EXPECT_TRUE(testing::NamesIn(directory.path()).empty());
  EXPECT_THAT(CreateShard((directory / "x.tar"), {.modification_time = -1}),
              StatusIs(StatusCode::kInvalidArgument));
}

TEST(WebDatasetWriterTest, AnOlderIndexNeverStandsBesideANewShard) {
  const TempDir directory;
  ASSERT_OK(Write((directory / "x.tar"), Samples()));
  ASSERT_OK(Write((directory / "x.tar"), {Samples()[0]}, {.with_index = false}));
  EXPECT_EQ(testing::NamesIn(directory.path()), (std::vector<std::string>{"x.tar"}));
}

TEST(WebDatasetWriterTest, ALargeFieldGoesPastTheBuffer) {
  const TempDir directory;
  const std::string path = (directory / "x.tar");
  const std::string large(3'000'001, 'l');
  ASSERT_OK(
      Write(path, {MakeSample("a", {{"x", large}, {"y", "1"}}), MakeSample("b", {{"x", "2"}})}));
  ASSERT_OK_AND_ASSIGN(const auto shard, OpenShard(Object(path), {.check = ShardCheck::kContents},
                                                   Object(IndexPath(path))));
  ASSERT_OK_AND_ASSIGN(const Sample sample, shard->ReadRecord(0));
  EXPECT_EQ(sample.Find("x")->value.text(), large);
}

}  // namespace
}  // namespace ait

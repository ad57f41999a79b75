// SPDX-License-Identifier: Apache-2.0
#include "ait/data/format/folder.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "data/format/shard_test_support.h"

namespace ait {
namespace {

using ::ait::testing::DirectoryStorage;
using ::ait::testing::Numbers;
using ::ait::testing::ReadAll;
using ::ait::testing::StatusIs;
using ::ait::testing::TempDir;
using ::ait::testing::WriteBytes;
using ::testing::HasSubstr;

class FolderTest : public ::testing::Test {
 protected:
  void Put(const std::string& name, const std::string& text) {
    const std::filesystem::path path = std::filesystem::path(directory_.path()) / name;
    std::filesystem::create_directories(path.parent_path());
    WriteBytes(path.string(), text);
  }
  StatusOr<std::shared_ptr<const SampleSource>> Open(const FolderOptions& options = {}) {
    return OpenFolder(storage_, directory_.path(), options);
  }

  const TempDir directory_;
  const std::shared_ptr<DirectoryStorage> storage_ = std::make_shared<DirectoryStorage>();
};

TEST_F(FolderTest, FilesOfOneKeyAreOneSample) {
  Put("cat/1.jpg", "j");
  Put("cat/1.seg.png", "p");
  Put("cat/1.txt", "t");
  Put("dog/0.jpg", "d");
  Put("dog/readme", "no extension");
  Put(".hidden/2.jpg", "");
  Put("dog/.x.jpg", "");
  ASSERT_OK_AND_ASSIGN(const auto source, Open());
  const std::vector<Sample> samples = ReadAll(*source);
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].key, "cat/1");
  ASSERT_EQ(samples[0].fields.size(), 3u);
  EXPECT_EQ(samples[0].Find("seg.png")->value.text(), "p");
  EXPECT_EQ(samples[1].key, "dog/0");
}

TEST_F(FolderTest, TheCaseOfAnExtensionDoesNotMatter) {
  Put("IMG_1.JPG", "j");
  Put("IMG_1.Cls", "7");
  Put("IMG_2.JPG", "k");
  ASSERT_OK_AND_ASSIGN(const auto source, OpenSamples(storage_, directory_.path()));
  const std::vector<Sample> samples = ReadAll(*source);
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].key, "IMG_1");
  ASSERT_NE(samples[0].Find("jpg"), nullptr);
  EXPECT_EQ(samples[0].Find("jpg")->value.text(), "j");
  ASSERT_NE(samples[0].Find("cls"), nullptr);
  Put("IMG_2.jpg", "two of one field");
  EXPECT_THAT(Open(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("IMG_2.jpg")));
}

TEST_F(FolderTest, EveryFileMayBeASampleWithItsDirectoryAsClass) {
  Put("b/1.jpg", "j");
  Put("a/x.y.png", "p");
  Put("a/deep/z", "z");
  ASSERT_OK_AND_ASSIGN(const auto source,
                       Open({.grouping = FolderGrouping::kSingle, .labels = FolderLabels::kTop}));
  const std::vector<Sample> samples = ReadAll(*source);
  ASSERT_EQ(samples.size(), 3u);
  EXPECT_EQ(samples[0].key, "a/deep/z");
  EXPECT_EQ(samples[0].Find("data")->value.text(), "z");
  EXPECT_EQ(samples[1].key, "a/x.y.png");
  EXPECT_EQ(samples[1].Find("png")->value.text(), "p");
  EXPECT_EQ(samples[2].Find("class")->value.text(), "b");
  EXPECT_EQ(Numbers<std::int64_t>(samples[2].Find("label")), std::vector<std::int64_t>({1}));
}

TEST_F(FolderTest, AFileThatChangedOrWentAwayIsAnErrorOfItsSample) {
  Put("1.txt", "one");
  Put("2.txt", "two");
  Put("3.txt", "three");
  ASSERT_OK_AND_ASSIGN(const auto source, Open());
  Put("1.txt", "longer");
  std::filesystem::remove(directory_ / "2.txt");
  std::vector<SampleRead> reads = {{.id = 0}, {.id = 1}, {.id = 2}};
  source->Read(reads);
  EXPECT_THAT(reads[0].status, StatusIs(StatusCode::kAborted, HasSubstr("1.txt")));
  EXPECT_THAT(reads[1].status, StatusIs(StatusCode::kNotFound));
  EXPECT_OK(reads[2].status);
}

TEST_F(FolderTest, SaysWhatIsWrong) {
  EXPECT_THAT(Open(), StatusIs(StatusCode::kNotFound));
  Put("1.txt", "one");
  EXPECT_THAT(Open({.labels = FolderLabels::kTop}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("1.txt")));
}

TEST_F(FolderTest, TheDigestTellsFoldersApart) {
  Put("1.txt", "one");
  ASSERT_OK_AND_ASSIGN(const auto first, Open());
  ASSERT_OK_AND_ASSIGN(const auto again, Open());
  EXPECT_EQ(first->digest(), again->digest());
  Put("2.txt", "two");
  ASSERT_OK_AND_ASSIGN(const auto more, Open());
  EXPECT_NE(first->digest(), more->digest());
}

}  // namespace
}  // namespace ait

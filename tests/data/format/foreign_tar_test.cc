// SPDX-License-Identifier: Apache-2.0
// Tars that other programs wrote (testdata/make_tars.py) are read to the same samples.
#include <gtest/gtest.h>
#include <zlib.h>

#include <string>
#include <vector>

#include "ait/data/format/formats.h"
#include "data/format/format_test_support.h"
#include "data/format/webdataset_internal.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::ShownByRecord;
using ::ait::testing::ShownOf;
using ::ait::testing::StatusIs;
using Shown = std::vector<std::string>;

std::shared_ptr<const StoredObject> Tar(const std::string& name) {
  const std::string path = StrCat(AIT_TEST_DATA, "/", name, ".tar.gz");
  gzFile file = gzopen(path.c_str(), "rb");
  std::string bytes;
  char part[4096];
  int count = 0;
  while (file != nullptr && (count = gzread(file, part, sizeof(part))) > 0) {
    bytes.append(part, static_cast<std::size_t>(count));
  }
  if (file != nullptr) gzclose(file);
  return MemoryObject(name + ".tar", ByteView::Copy(bytes));
}

std::string Repeated(std::string_view text, int count) {
  std::string all;
  for (int i = 0; i < count; ++i) all += text;
  return all;
}

const std::string kJpeg0 = Repeated("\xff\xd8jpeg 0", 100);
const std::string kJpeg1 = Repeated("\xff\xd8jpeg 1", 200);

class ForeignTarTest : public ::testing::TestWithParam<const char*> {};

TEST_P(ForeignTarTest, IsReadToTheSameSamples) {
  const auto tar = Tar(GetParam());
  const Shown expected = {
      StrCat("a/000{cls=0,jpg=", kJpeg0, "}"),
      StrCat("a/001{cls=1,jpg=", kJpeg1, "}"),
      std::string(60, 'd') + "/" + std::string(90, 'n') + "{json={}}",
      std::string(40, 'e') + "/" + std::string(134, 'l') + "{txt=long}",
      "gr\xc3\xbc\xc3\x9f"
      "e{txt=utf-8}",
  };
  ASSERT_OK_AND_ASSIGN(const auto shard, OpenShard(tar));
  EXPECT_EQ(shard->format(), "webdataset");
  ASSERT_OK_AND_ASSIGN(const Shown by_table, ShownByRecord(*shard));
  EXPECT_EQ(by_table, expected);
  ASSERT_OK_AND_ASSIGN(const auto stream, internal::StreamTar(tar, {}, {}, nullptr));
  ASSERT_OK_AND_ASSIGN(const Shown streamed, ShownOf(*stream));
  EXPECT_EQ(streamed, expected);
}

INSTANTIATE_TEST_SUITE_P(Writers, ForeignTarTest,
                         ::testing::Values("webdataset", "python_gnu", "python_pax", "tar_gnu",
                                           "tar_posix", "bsdtar_pax", "bsdtar_gnutar"));

TEST(ForeignTarTest, HardLinksOfGnuTar) {
  ASSERT_OK_AND_ASSIGN(const auto shard, OpenShard(Tar("tar_hardlink")));
  ASSERT_OK_AND_ASSIGN(const Shown read, ShownByRecord(*shard));
  EXPECT_EQ(read, (Shown{StrCat("a/000{jpg=", kJpeg0, "}"), StrCat("a/001{jpg=", kJpeg1, "}"),
                         StrCat("a/002{jpg=", kJpeg0, "}")}));
}

TEST(ForeignTarTest, SparseFilesOfGnuTarAreBadSamplesBetweenGoodOnes) {
  for (const char* name : {"tar_sparse_gnu", "tar_sparse_posix"}) {
    ASSERT_OK_AND_ASSIGN(const auto shard, OpenShard(Tar(name)));
    ASSERT_EQ(shard->record_count(), 3) << name;
    EXPECT_OK(shard->ReadRecord(0).status());
    EXPECT_THAT(shard->ReadRecord(1),
                StatusIs(StatusCode::kInvalidArgument, ::testing::HasSubstr("sparse")));
    ASSERT_OK_AND_ASSIGN(const Sample last, shard->ReadRecord(2));
    EXPECT_EQ(last.Find("jpg")->value.text(), kJpeg1);
  }
}

}  // namespace
}  // namespace ait

// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <random>
#include <string>

#include "data/storage/s3_xml_internal.h"
#include "support/status_matchers.h"

namespace ait::internal {
namespace {

using ::ait::testing::StatusIs;

// As S3 answers, but for names.
constexpr char kPage[] = R"(<?xml version="1.0" encoding="UTF-8"?>
<ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>corpus</Name><Prefix>a/</Prefix>
<NextContinuationToken>1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=</NextContinuationToken><KeyCount>2</KeyCount>
<MaxKeys>2</MaxKeys><!-- > & --><IsTruncated>true</IsTruncated>
<Contents><Key>a/x &amp; &lt;y&gt; &quot;&apos;&#233;&#x65E5;.tar</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified>
<ETag>&quot;70ee1738b6b21e2c8a43f3a5ab0eee71-12&quot;</ETag><Size>5368709120</Size><Owner><ID>1</ID></Owner></Contents>
<Contents><Key><![CDATA[a/<y>&amp;]]></Key><Size>0</Size></Contents><CommonPrefixes/></ListBucketResult>
)";

TEST(S3XmlTest, ReadsAPage) {
  ASSERT_OK_AND_ASSIGN(const S3ListPage page, ParseS3ListPage(kPage));
  EXPECT_TRUE(page.is_truncated);
  EXPECT_EQ(page.next_token, "1ueGcxLPRx1Tr/XYExHnhbYLgveDs2J/wm36Hy4vbOwM=");
  ASSERT_EQ(page.objects.size(), 2U);
  EXPECT_EQ(page.objects[0].key, "a/x & <y> \"'\xc3\xa9\xe6\x97\xa5.tar");
  EXPECT_EQ(page.objects[0].size_bytes, 5368709120);
  EXPECT_EQ(page.objects[0].etag, "\"70ee1738b6b21e2c8a43f3a5ab0eee71-12\"");
  EXPECT_EQ(page.objects[1].key, "a/<y>&amp;");
}

TEST(S3XmlTest, DecodesKeysWhereTheServiceSaysSo) {
  ASSERT_OK_AND_ASSIGN(
      const S3ListPage page,
      ParseS3ListPage("<ListBucketResult><Contents><Key>a+b%2Bc%25</Key><Size>1</Size></Contents>"
                      "<EncodingType>url</EncodingType></ListBucketResult>"));
  EXPECT_EQ(page.objects.at(0).key, "a b+c%");
  ASSERT_OK_AND_ASSIGN(const S3ListPage plain,
                       ParseS3ListPage("<ListBucketResult><Contents><Key>a+b%2B</Key>"
                                       "<Size>1</Size></Contents></ListBucketResult>"));
  EXPECT_EQ(plain.objects.at(0).key, "a+b%2B");
}

TEST(S3XmlTest, ReadsErrorsAndUploads) {
  ASSERT_OK_AND_ASSIGN(const S3Error error,
                       ParseS3Error("\xEF\xBB\xBF<?xml version='1.0'?><Error><Code>SlowDown</Code>"
                                    "<Message>wait</Message><Region>eu-west-1</Region></Error>"));
  EXPECT_EQ(error.code, "SlowDown");
  EXPECT_EQ(error.message, "wait");
  EXPECT_EQ(error.region, "eu-west-1");
  EXPECT_THAT(ParseS3Error(kPage), StatusIs(StatusCode::kInvalidArgument));
  ASSERT_OK_AND_ASSIGN(const std::string id,
                       ParseS3UploadId("<x:InitiateMultipartUploadResult xmlns:x=\"a>b\">"
                                       "<x:UploadId>u/=+</x:UploadId>"
                                       "</x:InitiateMultipartUploadResult>"));
  EXPECT_EQ(id, "u/=+");
}

TEST(S3XmlTest, RefusesWhatIsNotWellFormed) {
  for (const char* bad : {"",
                          " ",
                          "text",
                          "<",
                          "<a",
                          "<a>",
                          "<a></b>",
                          "<a></a",
                          "<a></a><b></b>",
                          "<a></a>x",
                          "<a><b></a></b>",
                          "</a>",
                          "<a>&bad;</a>",
                          "<a>&</a>",
                          "<a>&#0;</a>",
                          "<a>&#xD800;</a>",
                          "<a>&#x110000;</a>",
                          "<a>&#99999999999;</a>",
                          "<a b='<'></a>",
                          "<a b=\"></a>",
                          "<>x</>",
                          "<a><![CDATA[</a>",
                          "<a><!-- </a>",
                          "<a></a x='1'>",
                          "<a/><",
                          "<!DOCTYPE a [<!ENTITY b \"c\">]><a>&b;</a>"}) {
    EXPECT_THAT(ParseS3Error(bad), StatusIs(StatusCode::kInvalidArgument)) << bad;
  }
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "<a>";
  EXPECT_THAT(ParseS3Error(deep), StatusIs(StatusCode::kInvalidArgument));
}

TEST(S3XmlTest, RefusesPagesThatCannotBe) {
  for (const char* inside :
       {"<Contents><Size>1</Size></Contents>", "<Contents><Key>a</Key></Contents>",
        "<Contents><Key>a</Key><Size>-1</Size></Contents>",
        "<Contents><Key>a</Key><Size>x</Size></Contents>",
        "<Contents><Key>a</Key><Size>99999999999999999999</Size></Contents>",
        "<IsTruncated>true</IsTruncated>",
        "<EncodingType>url</EncodingType><Contents><Key>%</Key><Size>1</Size></Contents>"}) {
    EXPECT_THAT(ParseS3ListPage(std::string("<ListBucketResult>") + inside + "</ListBucketResult>"),
                StatusIs(StatusCode::kInvalidArgument))
        << inside;
  }
}

TEST(S3XmlTest, NeitherCutNorFlippedBytesAreTakenForMore) {
  const std::string page = kPage;
  for (std::size_t length = 0; length + 1 < page.size(); ++length) {
    EXPECT_FALSE(ParseS3ListPage(page.substr(0, length)).ok()) << length;
  }
  std::mt19937 random(1);
  for (int i = 0; i < 20'000; ++i) {
    std::string damaged = page;
    damaged[random() % damaged.size()] = static_cast<char>(random());
    (void)ParseS3ListPage(damaged);
  }
}

}  // namespace
}  // namespace ait::internal

// SPDX-License-Identifier: Apache-2.0
// Answers of S3: no bytes may crash the reader of their XML, or give what cannot be.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/storage/s3_xml_internal.h"
#include "fuzz/fuzz.h"

std::vector<std::string> ait::testing::FuzzSeeds() {
  return {
      "<?xml version=\"1.0\"?><ListBucketResult xmlns=\"x\"><IsTruncated>true</IsTruncated>"
      "<NextContinuationToken>t&amp;</NextContinuationToken><Contents><Key>a&#x65E5;</Key>"
      "<ETag>&quot;0&quot;</ETag><Size>12</Size></Contents><CommonPrefixes/>"
      "<EncodingType>url</EncodingType><!-- c --></ListBucketResult>",
      "<Error><Code>SlowDown</Code><Message><![CDATA[<wait>]]></Message></Error>",
      "<a:InitiateMultipartUploadResult><UploadId>u</UploadId>"
      "</a:InitiateMultipartUploadResult>"};
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ait::ByteView input = ait::testing::Copied(data, size);
  const std::string_view xml = input.text();
  if (const auto page = ait::internal::ParseS3ListPage(xml); page.ok()) {
    for (const auto& object : page->objects) AIT_FUZZ_CHECK(object.size_bytes >= 0);
    AIT_FUZZ_CHECK(!page->is_truncated || !page->next_token.empty());
  }
  (void)ait::internal::ParseS3Error(xml);
  (void)ait::internal::ParseS3UploadId(xml);
  return 0;
}

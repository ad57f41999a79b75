// SPDX-License-Identifier: Apache-2.0
// Answers of S3: no bytes may crash the reader of their XML.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "data/storage/s3_xml_internal.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view xml(reinterpret_cast<const char*>(data), size);
  if (const auto page = ait::internal::ParseS3ListPage(xml); page.ok()) {
    for (const auto& object : page->objects) {
      if (object.size_bytes < 0) __builtin_trap();
    }
    if (page->is_truncated && page->next_token.empty()) __builtin_trap();
  }
  (void)ait::internal::ParseS3Error(xml);
  (void)ait::internal::ParseS3UploadId(xml);
  return 0;
}

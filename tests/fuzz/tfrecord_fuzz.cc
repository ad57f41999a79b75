// SPDX-License-Identifier: Apache-2.0
// TFRecord files: the table of records and the reading in one pass agree.
#include "data/format/tfrecord_internal.h"

#include "ait/data/crc32c.h"
#include "ait/data/format/formats.h"
#include "fuzz/fuzz.h"

namespace ait::testing {
namespace {

std::string Record(std::string_view data) {
  std::uint64_t length = data.size();
  std::string bytes(reinterpret_cast<const char*>(&length), 8);
  const auto put = [&](std::string_view of) {
    const std::uint32_t crc = internal::MaskedCrc32c(std::as_bytes(std::span(of)));
    bytes.append(reinterpret_cast<const char*>(&crc), 4);
  };
  put(std::string_view(bytes).substr(0, 8));
  bytes += data;
  put(data);
  return bytes;
}

}  // namespace

std::vector<std::string> FuzzSeeds() {
  return {Record("") + Record("a") + Record(std::string(300, 'x')), Record("one")};
}

}  // namespace ait::testing

namespace ait {

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto object = MemoryObject("input", testing::Copied(data, size));
  const ShardOptions options = {.format = "tfrecord"};
  const auto shard = OpenShard(object, options);
  const auto stream = internal::StreamTfrecord(
      object, options, {.block_bytes = 1 + static_cast<std::int64_t>(size % 100)}, nullptr);
  AIT_FUZZ_CHECK(stream.ok());
  Sample sample;
  for (std::int64_t record = 0; shard.ok() && record < (*shard)->record_count(); ++record) {
    const StatusOr<bool> is_there = (*stream)->Next(sample);
    AIT_FUZZ_CHECK((*shard)->ReadRecord(record).status() == is_there.status());
    AIT_FUZZ_CHECK(!is_there.ok() || *is_there);
  }
  if (shard.ok()) {
    const StatusOr<bool> is_there = (*stream)->Next(sample);
    AIT_FUZZ_CHECK(is_there.ok() && !*is_there);
    return 0;
  }
  for (int errors = 0; errors < 3;) {
    const StatusOr<bool> is_there = (*stream)->Next(sample);
    AIT_FUZZ_CHECK(!is_there.ok() || *is_there);
    if (!is_there.ok()) ++errors;
  }
  return 0;
}

}  // namespace ait

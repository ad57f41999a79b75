// SPDX-License-Identifier: Apache-2.0
// The index beside a shard: what is read is written back as it was.
#include "ait/data/format/index.h"
#include "fuzz/fuzz.h"

namespace ait::testing {

std::vector<std::string> FuzzSeeds() {
  ShardIndex index = {.format = "webdataset",
                      .shard_bytes = 10240,
                      .extents = {{0, 1024}, {1024, 2048}, {5120, 512}},
                      .checksums = {1, 2, 3}};
  std::vector<std::string> seeds = {SerializeIndex(index)};
  index.checksums.clear();
  index.key_rule = KeyRule::kLastDot;
  seeds.push_back(SerializeIndex(index));
  return seeds;
}

}  // namespace ait::testing

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ait::ByteView input = ait::testing::Copied(data, size);
  const auto index = ait::ParseIndex(input.bytes(), "input");
  if (!index.ok()) return 0;
  std::int64_t end = 0;
  for (const ait::RecordExtent& extent : index->extents) {
    AIT_FUZZ_CHECK(extent.offset_bytes >= end && extent.length_bytes >= 0);
    end = extent.offset_bytes + extent.length_bytes;
  }
  AIT_FUZZ_CHECK(end <= index->shard_bytes);
  // Without records the file does not tell whether checksums were asked for.
  AIT_FUZZ_CHECK(index->extents.empty() || ait::SerializeIndex(*index) == input.text());
  return 0;
}

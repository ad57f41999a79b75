// SPDX-License-Identifier: Apache-2.0
// Shards of MDS.
#include "fuzz/shard_fuzz.h"

std::vector<std::string> ait::testing::FuzzSeeds() {
  return SeedFiles({"mds_plain/shard.00000.mds", "mds_plain/shard.00001.mds"});
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ait::testing::FuzzShard("mds", ait::testing::Copied(data, size));
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// CSV.
#include "fuzz/shard_fuzz.h"

std::vector<std::string> ait::testing::FuzzSeeds() { return SeedFiles({"quoted.csv"}); }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ait::testing::FuzzShard("csv", ait::testing::Copied(data, size));
  return 0;
}

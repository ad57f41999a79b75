// SPDX-License-Identifier: Apache-2.0
// safetensors files as data.
#include "fuzz/shard_fuzz.h"

std::vector<std::string> ait::testing::FuzzSeeds() { return SeedFiles({"rows.safetensors"}); }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ait::testing::FuzzShard("safetensors", ait::testing::Copied(data, size));
  return 0;
}

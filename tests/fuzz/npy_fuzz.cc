// SPDX-License-Identifier: Apache-2.0
// npy files.
#include "fuzz/shard_fuzz.h"

std::vector<std::string> ait::testing::FuzzSeeds() {
  return SeedFiles({"f4_2d.npy", "i2_big.npy", "u8_large.npy", "version3.npy", "structure.npy"});
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ait::testing::FuzzShard("npy", ait::testing::Copied(data, size));
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// npz files, and with them the zip archive.
#include "fuzz/shard_fuzz.h"

std::vector<std::string> ait::testing::FuzzSeeds() {
  return SeedFiles({"stored.npz", "deflated.npz", "one.npz"});
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ait::testing::FuzzShard("npz", ait::testing::Copied(data, size));
  return 0;
}

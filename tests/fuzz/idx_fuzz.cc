// SPDX-License-Identifier: Apache-2.0
// idx files.
#include "fuzz/shard_fuzz.h"

std::vector<std::string> ait::testing::FuzzSeeds() {
  return SeedFiles({"floats.idx", "mnist/train-labels-idx1-ubyte"});
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ait::testing::FuzzShard("idx", ait::testing::Copied(data, size));
  return 0;
}

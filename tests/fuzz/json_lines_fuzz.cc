// SPDX-License-Identifier: Apache-2.0
// JSON lines.
#include "fuzz/shard_fuzz.h"

std::vector<std::string> ait::testing::FuzzSeeds() { return SeedFiles({"mixed.jsonl"}); }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ait::testing::FuzzShard("jsonl", ait::testing::Copied(data, size));
  return 0;
}

// SPDX-License-Identifier: Apache-2.0
// Token files of llm.c.
#include "fuzz/shard_fuzz.h"

std::vector<std::string> ait::testing::FuzzSeeds() { return SeedFiles({"gpt2.bin"}); }

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  ait::testing::FuzzShard("llmc", ait::testing::Copied(data, size));
  return 0;
}

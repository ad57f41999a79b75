// SPDX-License-Identifier: Apache-2.0
// The .idx of Megatron: documents follow each other and end where the tokens do.
#include "data/megatron_index_internal.h"
#include "fuzz/shard_fuzz.h"

std::vector<std::string> ait::testing::FuzzSeeds() {
  return SeedFiles({"megatron/part0.idx", "megatron/part1.idx"});
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ait::ByteView input = ait::testing::Copied(data, size);
  const auto object = ait::MemoryObject("input", input);
  std::vector<std::int64_t> begins;
  const auto index = ait::internal::ReadMegatronIndex(
      {.size_bytes = object->info().size_bytes,
       .read = [&](std::int64_t offset,
                   std::span<std::byte> out) { return object->ReadAt(offset, out); }},
      &begins);
  if (!index.ok()) return 0;
  AIT_FUZZ_CHECK(static_cast<std::int64_t>(begins.size()) == index->borders);
  AIT_FUZZ_CHECK(begins.front() == 0 && begins.back() == index->tokens);
  AIT_FUZZ_CHECK(std::is_sorted(begins.begin(), begins.end()));
  return 0;
}

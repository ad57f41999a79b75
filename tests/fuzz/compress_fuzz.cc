// SPDX-License-Identifier: Apache-2.0
// gzip, zlib, Zstandard and LZ4: the limit holds, and pieces of any size give what the whole gives.
#include "ait/data/decode/compress.h"
#include "fuzz/shard_fuzz.h"

std::vector<std::string> ait::testing::FuzzSeeds() {
  return SeedFiles({"mds_gz/shard.00001.mds.gz", "mds_zstd/shard.00001.mds.zstd",
                    "mnist/train-images-idx3-ubyte.gz"});
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using ait::Compression;
  const ait::ByteView input = ait::testing::Copied(data, size);
  for (const Compression compression :
       {Compression::kGzip, Compression::kZlib, Compression::kZstd, Compression::kLz4}) {
    if (!ait::IsAvailable(compression)) continue;
    constexpr std::int64_t kLimit = 1 << 20;
    const auto whole = ait::Decompress(compression, input.bytes(), ait::Bytes(kLimit));
    if (!whole.ok()) continue;
    AIT_FUZZ_CHECK(static_cast<std::int64_t>(whole->size_bytes()) <= kLimit);
    const auto unpacker = ait::Decompressor::Create(compression);
    AIT_FUZZ_CHECK(unpacker.ok());
    std::string text;
    std::size_t at = 0;
    std::vector<std::byte> output(97);
    while (true) {
      const auto piece = input.bytes().subspan(at, std::min<std::size_t>(13, size - at));
      const auto step = (*unpacker)->Run(piece, output);
      AIT_FUZZ_CHECK(step.ok());
      text.append(reinterpret_cast<const char*>(output.data()), step->produced);
      at += step->consumed;
      if (at == size && step->produced < output.size()) break;
      AIT_FUZZ_CHECK(step->consumed > 0 || step->produced > 0);
    }
    AIT_FUZZ_CHECK(text == whole->text() && (*unpacker)->is_complete());
  }
  return 0;
}

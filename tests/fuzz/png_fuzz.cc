// SPDX-License-Identifier: Apache-2.0
// PNG files: any bytes give a status or an image, and what is written of it is it again.
#include "ait/data/decode/png.h"

#include <cstring>

#include "fuzz/fuzz.h"

namespace ait::testing {

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  for (const int channels : {1, 3, 4}) {
    Image image = *Image::Create(9, 7, channels);
    std::memset(image.data(), 100, image.size_bytes());
    const auto file = *EncodePng(image);
    seeds.emplace_back(reinterpret_cast<const char*>(file.data()), file.size());
  }
  return seeds;
}

}  // namespace ait::testing

namespace ait {

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ByteView file = testing::Copied(data, size);
  for (const ColorMode mode : {ColorMode::kUnchanged, ColorMode::kGray, ColorMode::kRgba}) {
    const PngOptions options = {.mode = mode, .limits = {.max_side = 2000, .max_pixels = 200'000}};
    const auto image = DecodePng(file.bytes(), options);
    if (!image.ok()) continue;
    const auto again = DecodePng(*EncodePng(*image, {.compression = 1}), options);
    AIT_FUZZ_CHECK(again.ok() && again->size_bytes() == image->size_bytes());
    AIT_FUZZ_CHECK(std::memcmp(again->data(), image->data(), image->size_bytes()) == 0);
  }
  return 0;
}

}  // namespace ait

// SPDX-License-Identifier: Apache-2.0
// JPEG files: any bytes give a status or an image, and a region is what it is in the whole.
#include "ait/data/decode/jpeg.h"

#include <cstring>

#include "fuzz/fuzz.h"

namespace ait::testing {

std::vector<std::string> FuzzSeeds() {
  std::vector<std::string> seeds;
  Image image = *Image::Create(24, 35, 3);
  for (std::size_t i = 0; i < image.size_bytes(); ++i) {
    image.data()[i] = static_cast<std::uint8_t>(i * i / 7);
  }
  for (const bool is_progressive : {false, true}) {
    for (const auto subsampling : {JpegSubsampling::k444, JpegSubsampling::k420}) {
      const auto file = *EncodeJpeg(
          image, {.quality = 60, .subsampling = subsampling, .is_progressive = is_progressive});
      seeds.emplace_back(reinterpret_cast<const char*>(file.data()), file.size());
    }
  }
  return seeds;
}

}  // namespace ait::testing

namespace ait {

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const ByteView file = testing::Copied(data, size);
  JpegOptions options = {.orientation = Orientation::kApply,
                         .limits = {.max_side = 1000, .max_pixels = 200'000}};
  DecodeJpeg(file.bytes(), {.mode = ColorMode::kUnchanged,
                            .scale_eighths = 3,
                            .warnings = JpegWarnings::kAccept,
                            .limits = options.limits})
      .IgnoreError();
  const auto whole = DecodeJpeg(file.bytes(), options);
  if (!whole.ok()) return 0;
  const Rect region = {whole->height() / 3, whole->width() / 2, (whole->height() + 2) / 3,
                       (whole->width() + 1) / 2};
  options.region = region;
  const auto part = DecodeJpeg(file.bytes(), options);
  AIT_FUZZ_CHECK(part.ok());
  for (int y = 0; y < region.height; ++y) {
    AIT_FUZZ_CHECK(std::memcmp(part->view().Row(y), whole->view().Crop(region).Row(y),
                               part->row_bytes()) == 0);
  }
  return 0;
}

}  // namespace ait

// SPDX-License-Identifier: Apache-2.0
#include "ait/data/decode/resize.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <map>
#include <sstream>

#include "data/decode/decode_test_support.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using testing::Pixels;
using testing::StatusIs;
using testing::WavyImage;

const std::map<std::string, ResizeFilter> kFilters = {{"nearest", ResizeFilter::kNearest},
                                                      {"box", ResizeFilter::kBox},
                                                      {"bilinear", ResizeFilter::kBilinear},
                                                      {"bicubic", ResizeFilter::kBicubic},
                                                      {"lanczos", ResizeFilter::kLanczos}};

/// As in make_resize.py.
Image Numbered(int height, int width, int channels) {
  Image image = *Image::Create(height, width, channels);
  for (std::size_t i = 0; i < image.size_bytes(); ++i) {
    image.data()[i] = static_cast<std::uint8_t>(static_cast<std::uint32_t>(i) * 2654435761U >> 24);
  }
  return image;
}

TEST(ResizeTest, EveryPixelIsThatOfPillow) {
  std::istringstream lines(testing::AsText(testing::TestFile("resize.txt")));
  std::string filter;
  int channels = 0, from_height = 0, from_width = 0, height = 0, width = 0;
  Box box;
  unsigned long crc = 0;
  int count = 0;
  while (lines >> filter >> channels >> from_height >> from_width >> height >> width >> box.top >>
         box.left >> box.height >> box.width >> crc) {
    const Image image = Numbered(from_height, from_width, channels);
    ASSERT_OK_AND_ASSIGN(const Image resized,
                         Resize(image, height, width, {.filter = kFilters.at(filter), .box = box}));
    EXPECT_EQ(crc32(0, resized.data(), static_cast<uInt>(resized.size_bytes())), crc)
        << filter << " " << channels << " " << from_height << " x " << from_width << " to "
        << height << " x " << width << " at " << box.top << ", " << box.left;
    ++count;
  }
  EXPECT_EQ(count, 100);
}

TEST(ResizeTest, ACropIsResizedAsItsCopy) {
  const Image image = WavyImage(60, 70, 4);
  const ImageView crop = image.view().Crop({7, 9, 41, 33});
  ASSERT_OK_AND_ASSIGN(const Image copy, Image::Copy(crop));
  for (const auto& [name, filter] : kFilters) {
    ASSERT_OK_AND_ASSIGN(const Image a, Resize(crop, 20, 50, {.filter = filter}));
    ASSERT_OK_AND_ASSIGN(const Image b, Resize(copy, 20, 50, {.filter = filter}));
    EXPECT_EQ(Pixels(a), Pixels(b)) << name;
  }
}

TEST(ResizeTest, AFlatImageStaysFlat) {
  for (const int value : {0, 1, 128, 255}) {
    Image image = *Image::Create(31, 17, 3);
    std::fill(image.data(), image.data() + image.size_bytes(), static_cast<std::uint8_t>(value));
    for (const auto& [name, filter] : kFilters) {
      for (const int size : {1, 5, 17, 40}) {
        ASSERT_OK_AND_ASSIGN(const Image resized, Resize(image, size, size, {.filter = filter}));
        EXPECT_EQ(Pixels(resized), std::string(resized.size_bytes(), static_cast<char>(value)))
            << name << " " << size;
      }
    }
  }
}

TEST(ResizeTest, WhatIsNotAllowedIsSaid) {
  const Image image = WavyImage(6, 7, 3);
  EXPECT_THAT(Resize(image, 0, 5), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(Resize(image, 5, 5, {.box = Box{0, 0, 6.5, 7}}),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(Resize(image, 5, 5, {.box = Box{0, 0, 0, 7}}),
              StatusIs(StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace ait

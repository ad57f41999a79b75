// SPDX-License-Identifier: Apache-2.0
#include "ait/data/decode/jpeg.h"

#include <gtest/gtest.h>

#include "ait/data/decode/image_ops.h"
#include "ait/data/decode/transform.h"
#include "data/decode/decode_test_support.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using testing::AsText;
using ::testing::HasSubstr;
using testing::MaxDifference;
using testing::Pixels;
using testing::StatusIs;
using testing::TestFile;
using testing::WavyImage;

std::vector<std::byte> Encoded(int height, int width, JpegSubsampling subsampling,
                               bool is_progressive = false) {
  return *EncodeJpeg(WavyImage(height, width, 3),
                     {.subsampling = subsampling, .is_progressive = is_progressive});
}

// Another release of libjpeg-turbo made the reference: a level of difference is allowed it.
TEST(JpegTest, PixelsAreThoseOfPillow) {
  for (const std::string name : {"420", "422", "444", "gray", "cmyk", "progressive", "restart"}) {
    const auto file = TestFile("images/" + name + ".jpg");
    ASSERT_OK_AND_ASSIGN(const Image image, DecodeJpeg(file, {.mode = ColorMode::kUnchanged}));
    EXPECT_EQ(image.channels(), name == "gray" ? 1 : 3);
    EXPECT_LE(MaxDifference(Pixels(image), AsText(TestFile("images/" + name + ".jpg.raw"))), 1)
        << name;
  }
}

TEST(JpegTest, TheHeaderSaysWhatItIs) {
  ASSERT_OK_AND_ASSIGN(const JpegHeader turned,
                       ReadJpegHeader(TestFile("images/orientation6.jpg")));
  EXPECT_EQ(turned.orientation, 6);
  EXPECT_EQ(turned.height, 41);
  EXPECT_EQ(turned.width, 53);
  ASSERT_OK_AND_ASSIGN(const JpegHeader other, ReadJpegHeader(TestFile("images/progressive.jpg")));
  EXPECT_TRUE(other.is_progressive);
  EXPECT_EQ(other.orientation, 1);
  ASSERT_OK_AND_ASSIGN(const JpegHeader cmyk, ReadJpegHeader(TestFile("images/cmyk.jpg")));
  EXPECT_EQ(cmyk.components, 4);
}

TEST(JpegTest, ARegionIsBitForBitWhatItIsInTheWhole) {
  SampleRandom random(1, 0, 0, 0);
  for (const auto subsampling :
       {JpegSubsampling::k444, JpegSubsampling::k422, JpegSubsampling::k420}) {
    for (const bool is_progressive : {false, true}) {
      const auto file = Encoded(123, 181, subsampling, is_progressive);
      for (int scale = 1; scale <= 16; ++scale) {
        ASSERT_OK_AND_ASSIGN(const Image whole, DecodeJpeg(file, {.scale_eighths = scale}));
        ASSERT_EQ(whole.height(), (123 * scale + 7) / 8);
        for (int trial = 0; trial < 12; ++trial) {
          const auto height = static_cast<int>(1 + random.Below(123));
          const auto width = static_cast<int>(1 + random.Below(181));
          const Rect region = RandomCropRect(123, 181, height, width, random);
          ASSERT_OK_AND_ASSIGN(const Image part,
                               DecodeJpeg(file, {.region = region, .scale_eighths = scale}));
          const Rect expected = ScaledRect(region, scale);
          ASSERT_EQ(part.height(), expected.height);
          ASSERT_EQ(part.width(), expected.width);
          ASSERT_EQ(Pixels(part), Pixels(whole.view().Crop(expected)))
              << "subsampling " << static_cast<int>(subsampling) << " progressive "
              << is_progressive << " scale " << scale << " at " << region.top << ", " << region.left
              << " of " << height << " x " << width;
        }
      }
    }
  }
}

TEST(JpegTest, ColorsAreAsAsked) {
  for (const std::string name : {"420", "gray", "cmyk"}) {
    const auto file = TestFile("images/" + name + ".jpg");
    ASSERT_OK_AND_ASSIGN(const Image rgb, DecodeJpeg(file, {}));
    ASSERT_OK_AND_ASSIGN(const Image rgba, DecodeJpeg(file, {.mode = ColorMode::kRgba}));
    ASSERT_OK_AND_ASSIGN(const Image gray, DecodeJpeg(file, {.mode = ColorMode::kGray}));
    ASSERT_OK_AND_ASSIGN(const Image back, ConvertColor(rgba, ColorMode::kRgb));
    ASSERT_OK_AND_ASSIGN(const Image luma, ConvertColor(rgb, ColorMode::kGray));
    EXPECT_EQ(Pixels(back), Pixels(rgb));
    EXPECT_EQ(rgba.data()[3], 255);
    EXPECT_LE(MaxDifference(Pixels(luma), Pixels(gray)), 2) << name;  // the file's own, unrounded
    ASSERT_OK_AND_ASSIGN(const Image part, DecodeJpeg(file, {.region = Rect{20, 21, 7, 9}}));
    EXPECT_EQ(Pixels(part), Pixels(rgb.view().Crop({20, 21, 7, 9})));
  }
}

/// `file` with an EXIF marker put behind its first two bytes.
std::vector<std::byte> WithOrientation(const std::vector<std::byte>& file, int orientation,
                                       bool is_little) {
  std::string tiff = is_little
                         ? std::string("II\x2a\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0", 18)
                         : std::string("MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01", 18);
  const char value = static_cast<char>(orientation);
  tiff += is_little ? std::string{value, 0, 0, 0} : std::string{0, value, 0, 0};
  tiff += std::string(4, '\0');
  const std::string body = std::string("Exif\0\0", 6) + tiff;
  const std::string marker =
      std::string("\xff\xe1\0", 3) + static_cast<char>(body.size() + 2) + body;
  std::vector<std::byte> result(file.begin(), file.begin() + 2);
  for (const char c : marker) result.push_back(static_cast<std::byte>(c));
  result.insert(result.end(), file.begin() + 2, file.end());
  return result;
}

TEST(JpegTest, OrientationTurnsTheImageAndTheRegion) {
  const auto plain = Encoded(45, 70, JpegSubsampling::k420);
  ASSERT_OK_AND_ASSIGN(const Image stored, DecodeJpeg(plain, {}));
  for (int orientation = 1; orientation <= 8; ++orientation) {
    const auto file = WithOrientation(plain, orientation, orientation % 2 == 0);
    ASSERT_OK_AND_ASSIGN(const JpegHeader header, ReadJpegHeader(file));
    ASSERT_EQ(header.orientation, orientation);
    ASSERT_OK_AND_ASSIGN(const Image ignored, DecodeJpeg(file, {}));
    EXPECT_EQ(Pixels(ignored), Pixels(stored));
    for (const int scale : {8, 3}) {
      const JpegOptions options = {.scale_eighths = scale, .orientation = Orientation::kApply};
      ASSERT_OK_AND_ASSIGN(const Image upright, DecodeJpeg(file, options));
      JpegOptions of_part = options;
      of_part.region = Rect{5, 11, 30, 20};
      ASSERT_OK_AND_ASSIGN(const Image part, DecodeJpeg(file, of_part));
      EXPECT_EQ(Pixels(part), Pixels(upright.view().Crop(ScaledRect(*of_part.region, scale))))
          << orientation << " at scale " << scale;
    }
  }
}

TEST(JpegTest, EveryTruncationIsDataLoss) {
  for (const bool is_progressive : {false, true}) {
    const auto file = Encoded(40, 56, JpegSubsampling::k420, is_progressive);
    for (std::size_t size = 0; size < file.size(); ++size) {
      const std::span<const std::byte> cut(file.data(), size);
      EXPECT_THAT(DecodeJpeg(cut, {}), StatusIs(StatusCode::kDataLoss)) << size;
      EXPECT_THAT(DecodeJpeg(cut, {.region = Rect{0, 0, 8, 8}}), StatusIs(StatusCode::kDataLoss))
          << size;
    }
  }
}

TEST(JpegTest, AWarningIsAnErrorUnlessAccepted) {
  auto file = Encoded(64, 64, JpegSubsampling::k420);
  file.resize(file.size() / 2);
  EXPECT_THAT(DecodeJpeg(file, {}),
              StatusIs(StatusCode::kDataLoss, HasSubstr("the JPEG is damaged")));
  ASSERT_OK_AND_ASSIGN(const Image image, DecodeJpeg(file, {.warnings = JpegWarnings::kAccept}));
  EXPECT_EQ(image.height(), 64);
}

TEST(JpegTest, FlippedBitsGiveAStatusOrAnImage) {
  const auto file = Encoded(40, 56, JpegSubsampling::k420, true);
  for (std::size_t bit = 0; bit < file.size() * 8; bit += 5) {
    auto damaged = file;
    damaged[bit / 8] ^= std::byte{1} << bit % 8;
    for (const auto warnings : {JpegWarnings::kRefuse, JpegWarnings::kAccept}) {
      const auto image = DecodeJpeg(damaged, {.warnings = warnings, .limits = {.max_side = 4096}});
      if (!image.ok()) {
        EXPECT_TRUE(image.status().code() == StatusCode::kDataLoss ||
                    image.status().code() == StatusCode::kInvalidArgument)
            << image.status();
      }
    }
  }
}

TEST(JpegTest, WhatIsNotAllowedIsSaid) {
  const auto file = Encoded(40, 56, JpegSubsampling::k420);
  EXPECT_THAT(DecodeJpeg(file, {.limits = {.max_side = 55}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("max_side")));
  EXPECT_THAT(DecodeJpeg(file, {.limits = {.max_pixels = 2239}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("40 x 56 = 2240 pixels")));
  EXPECT_THAT(DecodeJpeg(file, {.region = Rect{0, 0, 41, 5}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("41 x 5")));
  EXPECT_THAT(DecodeJpeg(file, {.region = Rect{1, 1, 1 << 30, (1 << 30) + 5}}),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(DecodeJpeg(file, {.scale_eighths = 17}), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(EncodeJpeg(WavyImage(2, 2, 4)), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(DecodeJpeg(std::as_bytes(std::span("GIF89a")), {}), StatusIs(StatusCode::kDataLoss));
}

TEST(JpegTest, TheScaleIsTheLeastThatKeepsEnough) {
  EXPECT_EQ(ScaleFor({0, 0, 512, 512}, 224, 224), 4);
  EXPECT_EQ(ScaleFor({0, 0, 448, 1000}, 224, 224), 4);
  EXPECT_EQ(ScaleFor({0, 0, 100, 1000}, 224, 224), 8);
  EXPECT_EQ(ScaleFor({0, 0, 4000, 4000}, 224, 224), 1);
  EXPECT_EQ(ScaledRect({3, 8, 10, 16}, 4), (Rect{1, 4, 6, 8}));
}

}  // namespace
}  // namespace ait

// SPDX-License-Identifier: Apache-2.0
#include "ait/data/decode/image_ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "ait/base/float16.h"
#include "data/decode/decode_test_support.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using testing::Pixels;
using testing::StatusIs;
using testing::WavyImage;

TEST(ImageOpsTest, TheCentreIsThatOfTorchvision) {
  EXPECT_EQ(CenterRect(10, 11, 4, 4), (Rect{3, 4, 4, 4}));  // round(3.5) = 4
  EXPECT_EQ(CenterRect(10, 13, 4, 4), (Rect{3, 4, 4, 4}));  // round(4.5) = 4
  EXPECT_EQ(CenterRect(3, 13, 4, 4), (Rect{0, 4, 3, 4}));
  EXPECT_EQ(ShorterSideTo(480, 641, 256), (std::pair{256, 341}));
  EXPECT_EQ(ShorterSideTo(641, 480, 256), (std::pair{341, 256}));
  EXPECT_EQ(ShorterSideTo(5, 5, 2), (std::pair{2, 2}));
}

TEST(ImageOpsTest, RandomCropsHaveTheirDistribution) {
  double area = 0, log_ratio = 0;
  int count = 0;
  for (int i = 0; i < 20'000; ++i) {
    SampleRandom random(3, 0, 0, i);
    const Rect rect = RandomResizedCropRect(400, 600, {}, random);
    ASSERT_OK(CheckRect(rect, 400, 600));
    area += rect.height * rect.width / 240'000.0;
    log_ratio += std::log(static_cast<double>(rect.width) / rect.height);
    ++count;
  }
  // What torchvision.transforms.RandomResizedCrop.get_params has on the average of 400,000.
  EXPECT_NEAR(area / count, 0.3893, 0.005);
  EXPECT_NEAR(log_ratio / count, 0.0313, 0.004);
}

TEST(ImageOpsTest, WhereNoCropFitsTheMiddleIsTaken) {
  SampleRandom random(3, 0, 0, 0);
  const RandomAreaOptions whole = {.min_area = 1, .max_area = 1};
  EXPECT_EQ(RandomResizedCropRect(100, 1000, whole, random), (Rect{0, 433, 100, 133}));
  EXPECT_EQ(RandomResizedCropRect(1000, 100, whole, random), (Rect{433, 0, 133, 100}));
  EXPECT_EQ(RandomResizedCropRect(1, 1, {}, random), (Rect{0, 0, 1, 1}));
}

TEST(ImageOpsTest, FlipsAndTurns) {
  for (const int channels : {1, 3, 4}) {
    const Image image = WavyImage(5, 8, channels);
    const auto at = [&](const Image& i, int y, int x) {
      return std::string(reinterpret_cast<const char*>(i.view().Row(y)) + x * channels,
                         static_cast<std::size_t>(channels));
    };
    for (int orientation = 1; orientation <= 8; ++orientation) {
      ASSERT_OK_AND_ASSIGN(const Image upright, ApplyOrientation(image, orientation));
      ASSERT_EQ(upright.height(), orientation < 5 ? 5 : 8);
      // Where the first row and column of the stored image are, by the table of EXIF 2.3.
      struct Corner {
        bool row_is_bottom, column_is_right;
      };
      constexpr Corner kCorners[] = {{false, false}, {false, true}, {true, true}, {true, false},
                                     {false, false}, {false, true}, {true, true}, {true, false}};
      const Corner corner = kCorners[orientation - 1];
      EXPECT_EQ(at(upright, corner.row_is_bottom ? upright.height() - 1 : 0,
                   corner.column_is_right ? upright.width() - 1 : 0),
                at(image, 0, 0))
          << orientation;
    }
    ASSERT_OK_AND_ASSIGN(const Image once, FlipHorizontally(image));
    ASSERT_OK_AND_ASSIGN(const Image twice, FlipHorizontally(once));
    EXPECT_NE(Pixels(once), Pixels(image));
    EXPECT_EQ(Pixels(twice), Pixels(image));
  }
  EXPECT_THAT(ApplyOrientation(WavyImage(2, 2, 1), 9), StatusIs(StatusCode::kInvalidArgument));
}

TEST(ImageOpsTest, NormalisedNumbersAreRoundedOnce) {
  const Image image = WavyImage(6, 5, 3);
  const Normalization normalization = ImageNetNormalization();
  for (const Layout layout : {Layout::kChw, Layout::kHwc}) {
    std::vector<float> full(6 * 5 * 3);
    std::vector<BFloat16> brain(full.size());
    ASSERT_OK(NormalizeInto(image, normalization, layout, DType::kFloat32,
                            std::as_writable_bytes(std::span(full))));
    ASSERT_OK(NormalizeInto(image, normalization, layout, DType::kBFloat16,
                            std::as_writable_bytes(std::span(brain))));
    for (int y = 0; y < 6; ++y) {
      for (int x = 0; x < 5; ++x) {
        for (int c = 0; c < 3; ++c) {
          const auto channel = static_cast<std::size_t>(c);
          const float expected = (static_cast<float>(image.view().Row(y)[x * 3 + c]) / 255.0F -
                                  normalization.mean[channel]) /
                                 normalization.deviation[channel];
          const auto at = static_cast<std::size_t>(layout == Layout::kChw ? (c * 6 + y) * 5 + x
                                                                          : (y * 5 + x) * 3 + c);
          EXPECT_EQ(full[at], expected);
          EXPECT_EQ(brain[at].bits, BFloat16(expected).bits);
        }
      }
    }
    EXPECT_THAT(NormalizeInto(image, normalization, layout, DType::kFloat32,
                              std::as_writable_bytes(std::span(brain))),
                StatusIs(StatusCode::kInvalidArgument));
  }
}

TEST(ImageOpsTest, ColorFactorsOfOneChangeNothing) {
  const Image image = WavyImage(6, 5, 3);
  ASSERT_OK_AND_ASSIGN(const Image same, AdjustColor(image, {}));
  EXPECT_EQ(Pixels(same), Pixels(image));
  ASSERT_OK_AND_ASSIGN(const Image black, AdjustColor(image, {.brightness = 0}));
  EXPECT_EQ(Pixels(black), std::string(6 * 5 * 3, '\0'));
  ASSERT_OK_AND_ASSIGN(const Image gray, AdjustColor(image, {.saturation = 0}));
  ASSERT_OK_AND_ASSIGN(const Image luma, ConvertColor(image, ColorMode::kGray));
  ASSERT_OK_AND_ASSIGN(const Image again, ConvertColor(luma, ColorMode::kRgb));
  EXPECT_EQ(Pixels(gray), Pixels(again));
  ASSERT_OK_AND_ASSIGN(const Image flat, AdjustColor(image, {.contrast = 0}));
  EXPECT_EQ(Pixels(flat), std::string(6 * 5 * 3, static_cast<char>(flat.data()[0])));
}

}  // namespace
}  // namespace ait

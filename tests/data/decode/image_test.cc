// SPDX-License-Identifier: Apache-2.0
#include "ait/data/decode/image.h"

#include <gtest/gtest.h>

#include "data/decode/decode_test_support.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using testing::Pixels;
using testing::StatusIs;
using testing::WavyImage;

TEST(ImageTest, AFieldSharesThePixels) {
  const Image image = WavyImage(5, 7, 3);
  const SampleField field = image.ToField("image");
  EXPECT_EQ(field.shape, (std::vector<std::int64_t>{5, 7, 3}));
  ASSERT_OK_AND_ASSIGN(const ImageView view, ImageOf(field));
  EXPECT_EQ(view.data, image.data());
  EXPECT_EQ(view.width, 7);
  EXPECT_TRUE(view.is_contiguous());
}

TEST(ImageTest, ACropIsAWindow) {
  const Image image = WavyImage(5, 7, 3);
  const ImageView crop = image.view().Crop({1, 2, 3, 4});
  EXPECT_FALSE(crop.is_contiguous());
  EXPECT_EQ(crop.Row(2)[5], image.view().Row(3)[2 * 3 + 5]);
  ASSERT_OK_AND_ASSIGN(const Image copy, Image::Copy(crop));
  EXPECT_EQ(Pixels(copy), Pixels(crop));
}

TEST(ImageTest, AFieldThatIsNoImageIsSaid) {
  SampleField field{.name = "x"};
  EXPECT_THAT(ImageOf(field), StatusIs(StatusCode::kInvalidArgument));
  field = WavyImage(5, 7, 3).ToField("x");
  field.shape = {5, 8, 3};
  EXPECT_THAT(ImageOf(field), StatusIs(StatusCode::kInvalidArgument));
  field.shape = {5, 21};
  EXPECT_OK(ImageOf(field));
  field.shape = {std::int64_t{1} << 40, std::int64_t{1} << 40, 3};
  EXPECT_THAT(ImageOf(field), StatusIs(StatusCode::kInvalidArgument));
  field.shape = {5, 7, 3};
  field.dtype = DType::kInt8;
  EXPECT_THAT(ImageOf(field), StatusIs(StatusCode::kInvalidArgument));
}

TEST(ImageTest, SizesAreLimited) {
  EXPECT_THAT(Image::Create(0, 1, 3), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(Image::Create(1, 1, 2), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_OK(CheckImageSize(10, 20, {.max_side = 20, .max_pixels = 200}));
  EXPECT_THAT(CheckImageSize(10, 20, {.max_side = 20, .max_pixels = 199}),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_OK(CheckRect({1, 2, 3, 4}, 4, 6));
  EXPECT_THAT(CheckRect({1, 2, 3, 5}, 4, 6), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(CheckRect({-1, 2, 3, 4}, 4, 6), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(CheckRect({0, 0, 0, 4}, 4, 6), StatusIs(StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace ait

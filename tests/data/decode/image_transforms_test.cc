// SPDX-License-Identifier: Apache-2.0
#include "ait/data/decode/image_transforms.h"

#include <gtest/gtest.h>

#include <thread>

#include "ait/data/decode/png.h"
#include "data/decode/decode_test_support.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Pixels;
using testing::StatusIs;
using testing::TestFile;
using testing::WavyImage;

Sample WithFile(const std::string& name, const std::vector<std::byte>& file) {
  Sample sample{.key = "k"};
  sample.Set({.name = name, .value = ByteView::Copy(file)});
  return sample;
}

Status Apply(const Transform& transform, Sample& sample, std::int64_t id = 0) {
  SampleRandom random(5, 1, 0, id);
  return transform(sample, random);
}

std::string ImageText(const Sample& sample) {
  return std::string(sample.Find("image")->value.text());
}

const RandomCropOptions kCrop = {.height = 32, .width = 40};

TEST(ImageTransformsTest, AFusedCropIsThatOfTheChain) {
  for (const bool is_png : {false, true}) {
    const Image image = WavyImage(150, 210, 3);
    const auto file = is_png ? *EncodePng(image) : *EncodeJpeg(image);
    const Transform fused = Chain({DecodeImage({.random_crop = kCrop}), RandomFlip()});
    const Transform chain = Chain({DecodeImage(), RandomResizedCrop(kCrop), RandomFlip()});
    const Transform scaled =
        Chain({DecodeImage({.random_crop = kCrop, .scaling = JpegScaling::kDown}), RandomFlip()});
    for (int id = 0; id < 50; ++id) {
      Sample a = WithFile("jpg", file), b = a, c = a;
      ASSERT_OK(Apply(fused, a, id));
      ASSERT_OK(Apply(chain, b, id));
      ASSERT_OK(Apply(scaled, c, id));
      EXPECT_THAT(a.Find("image")->shape, ElementsAre(32, 40, 3));
      EXPECT_EQ(ImageText(a), ImageText(b));
      double difference = 0;
      for (std::size_t i = 0; i < ImageText(a).size(); ++i) {
        difference += std::abs(static_cast<double>(static_cast<unsigned char>(ImageText(a)[i])) -
                               static_cast<unsigned char>(ImageText(c)[i]));
      }
      EXPECT_LT(difference / static_cast<double>(ImageText(a).size()), 4);
    }
  }
}

TEST(ImageTransformsTest, TheResultDependsOnTheSampleNotOnTheThread) {
  const auto file = *EncodeJpeg(WavyImage(90, 80, 3));
  const Transform train =
      Chain({DecodeImage({.random_crop = kCrop}), RandomFlip({.vertical = 0.5}),
             ColorJitter({.brightness = 0.4, .contrast = 0.4, .saturation = 0.4}),
             Normalize({.normalization = ImageNetNormalization()})});
  constexpr int kSamples = 40;
  std::vector<std::string> alone(kSamples), together(kSamples);
  const auto run = [&](std::vector<std::string>& results, int begin, int step) {
    for (int id = begin; id < kSamples; id += step) {
      Sample sample = WithFile("jpeg", file);
      if (Apply(train, sample, id).ok()) results[static_cast<std::size_t>(id)] = ImageText(sample);
    }
  };
  run(alone, 0, 1);
  std::vector<std::thread> threads;
  for (int t = 0; t < 3; ++t) threads.emplace_back([&, t] { run(together, t, 3); });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(alone, together);
  EXPECT_NE(alone[0], alone[1]);
  EXPECT_EQ(alone[0].size(), 32u * 40 * 3 * 4);
}

TEST(ImageTransformsTest, TheTestChainOfImageNet) {
  Sample sample = WithFile("png", *EncodePng(WavyImage(60, 90, 3)));
  const Transform test =
      Chain({DecodeImage(), ResizeShorter({.side = 40}), CenterCrop({.height = 32, .width = 32}),
             Normalize({.layout = Layout::kHwc, .dtype = DType::kBFloat16})});
  ASSERT_OK(Apply(test, sample));
  EXPECT_THAT(sample.Find("image")->shape, ElementsAre(32, 32, 3));
  EXPECT_EQ(sample.Find("image")->dtype, DType::kBFloat16);
  EXPECT_EQ(sample.fields.size(), 1u);
  Sample again = WithFile("png", *EncodePng(WavyImage(60, 90, 3)));
  ASSERT_OK(
      Apply(Chain({DecodeImage(), ResizeImage({.height = 9, .width = 7}), Normalize({})}), again));
  EXPECT_THAT(again.Find("image")->shape, ElementsAre(3, 9, 7));
}

TEST(ImageTransformsTest, OrientationTurnsTheCropToo) {
  const auto file = TestFile("images/orientation6.jpg");
  Sample sample = WithFile("jpg", file);
  ASSERT_OK(Apply(DecodeImage({.orientation = Orientation::kApply}), sample));
  EXPECT_THAT(sample.Find("image")->shape, ElementsAre(53, 41, 3));
  for (int id = 0; id < 10; ++id) {
    Sample a = WithFile("jpg", file), b = a;
    ASSERT_OK(
        Apply(DecodeImage({.random_crop = kCrop, .orientation = Orientation::kApply}), a, id));
    ASSERT_OK(
        Apply(Chain({DecodeImage({.orientation = Orientation::kApply}), RandomResizedCrop(kCrop)}),
              b, id));
    EXPECT_EQ(ImageText(a), ImageText(b));
  }
}

TEST(ImageTransformsTest, BadSamplesAreSaid) {
  auto file = *EncodeJpeg(WavyImage(60, 90, 3));
  file.resize(file.size() / 2);
  Sample cut = WithFile("jpg", file);
  EXPECT_THAT(Apply(DecodeImage(), cut),
              StatusIs(StatusCode::kDataLoss, HasSubstr("field jpg: the JPEG is damaged")));
  Sample other = WithFile("jpg", {std::byte{'G'}, std::byte{'I'}, std::byte{'F'}});
  EXPECT_THAT(Apply(DecodeImage(), other), StatusIs(StatusCode::kDataLoss));
  Sample none = WithFile("txt", {});
  EXPECT_THAT(Apply(DecodeImage(), none),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("jpg or jpeg or png or image")));
  Sample small = WithFile("png", *EncodePng(WavyImage(20, 30, 3)));
  EXPECT_THAT(Apply(Chain({DecodeImage(), CenterCrop({.height = 21, .width = 21})}), small),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("20 x 30")));
}

}  // namespace
}  // namespace ait

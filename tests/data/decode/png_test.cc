// SPDX-License-Identifier: Apache-2.0
#include "ait/data/decode/png.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <zlib.h>

#include <span>
#include <string>
#include <vector>

#include "ait/data/decode/image_ops.h"
#include "data/decode/decode_test_support.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using testing::AsText;
using ::testing::HasSubstr;
using testing::Pixels;
using testing::StatusIs;
using testing::TestFile;
using testing::WavyImage;

TEST(PngTest, EveryKindBecomesEightBits) {
  struct Kind {
    std::string name;
    int channels;
  };
  for (const Kind& kind : {Kind{"gray1", 1},
                           {"gray1i", 1},
                           {"gray2", 1},
                           {"gray2i", 1},
                           {"gray4", 1},
                           {"gray4i", 1},
                           {"gray8", 1},
                           {"gray8i", 1},
                           {"gray16", 1},
                           {"gray16i", 1},
                           {"palette4", 3},
                           {"palette4t", 4},
                           {"kind2_8", 3},
                           {"kind2_16", 3},
                           {"kind6_8", 4},
                           {"kind6_16", 4},
                           {"kind4_8", 4},
                           {"kind4_16", 4},
                           {"gray1t", 4}}) {
    const auto file = TestFile("images/" + kind.name + ".png");
    const auto raw = AsText(TestFile("images/" + kind.name + ".png.raw"));
    ASSERT_OK_AND_ASSIGN(const Image image, DecodePng(file, {.mode = ColorMode::kUnchanged}));
    EXPECT_EQ(image.channels(), kind.channels) << kind.name;
    EXPECT_EQ(Pixels(image), raw) << kind.name;
    ASSERT_OK_AND_ASSIGN(const PngHeader header, ReadPngHeader(file));
    EXPECT_EQ(header.height, 13);
    EXPECT_EQ(header.width, 11);
    for (const ColorMode mode : {ColorMode::kGray, ColorMode::kRgb, ColorMode::kRgba}) {
      ASSERT_OK_AND_ASSIGN(const Image other, DecodePng(file, {.mode = mode}));
      ASSERT_OK_AND_ASSIGN(const Image expected, ConvertColor(image, mode));
      EXPECT_EQ(Pixels(other), Pixels(expected)) << kind.name << static_cast<int>(mode);
    }
  }
}

TEST(PngTest, WhatIsWrittenIsRead) {
  for (const int channels : {1, 3, 4}) {
    const Image image = WavyImage(37, 23, channels);
    ASSERT_OK_AND_ASSIGN(const auto file, EncodePng(image));
    ASSERT_OK_AND_ASSIGN(const Image read, DecodePng(file, {.mode = ColorMode::kUnchanged}));
    EXPECT_EQ(Pixels(read), Pixels(image));
  }
}

TEST(PngTest, EveryTruncationAndEveryFlippedBitIsFound) {
  for (const std::string name : {"palette4t", "kind6_16", "gray1"}) {
    const auto file = TestFile("images/" + name + ".png");
    for (std::size_t size = 0; size < file.size(); ++size) {
      const std::span<const std::byte> cut(file.data(), size);
      EXPECT_THAT(DecodePng(cut, {}), StatusIs(StatusCode::kDataLoss)) << name << size;
    }
    for (std::size_t bit = 0; bit < file.size() * 8; ++bit) {
      auto damaged = file;
      damaged[bit / 8] ^= std::byte{1} << bit % 8;
      EXPECT_FALSE(DecodePng(damaged, {}).ok()) << name << " bit " << bit;
    }
  }
}

TEST(PngTest, WhatIsNotAllowedIsSaid) {
  const auto file = TestFile("images/gray8.png");
  EXPECT_THAT(DecodePng(file, {.limits = {.max_side = 12}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("max_side")));
  EXPECT_THAT(DecodePng(file, {.limits = {.max_pixels = 142}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("13 x 11 = 143 pixels")));
  EXPECT_THAT(DecodePng({}, {}), StatusIs(StatusCode::kDataLoss, HasSubstr("no PNG")));
  EXPECT_THAT(EncodePng(WavyImage(2, 2, 1), {.compression = 10}),
              StatusIs(StatusCode::kInvalidArgument));
}

TEST(PngTest, TextsAreNotUnpacked) {
  // 90 texts that unpack to 7 MB each.
  const std::vector<unsigned char> text(7'000'000, 'x');
  uLongf packed_bytes = compressBound(text.size());
  std::vector<unsigned char> packed(packed_bytes);
  ASSERT_EQ(compress(packed.data(), &packed_bytes, text.data(), text.size()), Z_OK);
  std::string chunk = "zTXt" + std::string("key\0\0", 5);
  chunk.append(reinterpret_cast<const char*>(packed.data()), packed_bytes);
  const auto put = [](std::string& to, std::size_t value) {
    for (const int shift : {24, 16, 8, 0}) to += static_cast<char>(value >> shift);
  };
  std::string whole;
  put(whole, chunk.size() - 4);
  const auto crc =
      crc32(0, reinterpret_cast<const Bytef*>(chunk.data()), static_cast<uInt>(chunk.size()));
  whole += chunk;
  put(whole, crc);
  ASSERT_OK_AND_ASSIGN(std::vector<std::byte> file, EncodePng(WavyImage(5, 4, 3), {}));
  const auto plain = file;
  for (int i = 0; i < 90; ++i) {
    const auto bytes = std::as_bytes(std::span(whole));
    file.insert(file.begin() + 33, bytes.begin(), bytes.end());  // behind the first chunk
  }
  const auto peak_kib = [] {
    rusage usage = {};
    getrusage(RUSAGE_SELF, &usage);
    return usage.ru_maxrss;
  };
  const auto before = peak_kib();
  ASSERT_OK_AND_ASSIGN(const Image image, DecodePng(file, {}));
  EXPECT_LT(peak_kib() - before, 200 << 10);
  ASSERT_OK_AND_ASSIGN(const Image expected, DecodePng(plain, {}));
  EXPECT_EQ(Pixels(image.view()), Pixels(expected.view()));
}

}  // namespace
}  // namespace ait

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_DATA_DECODE_DECODE_TEST_SUPPORT_H_
#define AIT_TESTS_DATA_DECODE_DECODE_TEST_SUPPORT_H_

// Files of testdata/, and images made of numbers.

#include <cmath>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "ait/data/decode/image.h"

namespace ait::testing {

/// The bytes of testdata/`name`; none if it is missing.
inline std::vector<std::byte> TestFile(const std::string& name) {
  std::ifstream file(std::string(AIT_DECODE_TESTDATA) + "/" + name, std::ios::binary);
  std::vector<std::byte> bytes;
  for (std::istreambuf_iterator<char> c(file), end; c != end; ++c) {
    bytes.push_back(static_cast<std::byte>(*c));
  }
  return bytes;
}

/// Waves with some noise, different in each channel.
inline Image WavyImage(int height, int width, int channels) {
  Image image = *Image::Create(height, width, channels);
  std::uint32_t noise = 1;
  for (int y = 0; y < height; ++y) {
    for (int x = 0; x < width; ++x) {
      for (int c = 0; c < channels; ++c) {
        noise = noise * 1664525 + 1013904223;
        const double wave = 60 * std::sin(x / (4.0 + c)) + 60 * std::cos(y / (7.0 - c));
        image.Row(y)[x * channels + c] =
            static_cast<std::uint8_t>(120 + wave + static_cast<double>(noise >> 28));
      }
    }
  }
  return image;
}

/// Bytes of a view, row by row.
inline std::string Pixels(const ImageView& view) {
  std::string pixels;
  for (int y = 0; y < view.height; ++y) {
    pixels.append(reinterpret_cast<const char*>(view.Row(y)),
                  static_cast<std::size_t>(view.width) * static_cast<std::size_t>(view.channels));
  }
  return pixels;
}

inline std::string AsText(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// The largest difference of two images of equal size.
inline int MaxDifference(const std::string& a, const std::string& b) {
  if (a.size() != b.size()) return 256;
  int worst = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const int difference =
        static_cast<unsigned char>(a[i]) - static_cast<int>(static_cast<unsigned char>(b[i]));
    worst = std::max(worst, std::abs(difference));
  }
  return worst;
}

}  // namespace ait::testing

#endif  // AIT_TESTS_DATA_DECODE_DECODE_TEST_SUPPORT_H_

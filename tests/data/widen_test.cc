// SPDX-License-Identifier: Apache-2.0
#include "data/widen_internal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

namespace ait::internal {
namespace {

// Against the plain loop, at every length and alignment of a few vectors.
template <typename T>
void ExpectWidened(DType dtype) {
  std::mt19937_64 random(1);
  for (std::size_t count = 0; count < 150; ++count) {
    for (std::size_t shift = 0; shift < 9; ++shift) {
      std::vector<T> tokens(count);
      for (T& token : tokens) token = static_cast<T>(random());
      if (count > 0 && count % 3 == 0) tokens[random() % count] = std::numeric_limits<T>::max();
      std::vector<std::byte> bytes(shift + count * sizeof(T));
      if (count > 0) std::memcpy(bytes.data() + shift, tokens.data(), count * sizeof(T));
      std::vector<std::int64_t> out(count + 1, 77);
      const std::uint64_t max =
          WidenAndMax(dtype, bytes.data() + shift, std::span(out).first(count));
      std::uint64_t expected_max = 0;
      for (std::size_t i = 0; i < count; ++i) {
        ASSERT_EQ(out[i], static_cast<std::int64_t>(tokens[i]));
        expected_max =
            std::max<std::uint64_t>(expected_max, static_cast<std::make_unsigned_t<T>>(tokens[i]));
      }
      ASSERT_EQ(max, expected_max);
      ASSERT_EQ(out[count], 77);
    }
  }
}

TEST(WidenAndMax, GivesEveryTokenAndTheLargest) {
  ExpectWidened<std::uint8_t>(DType::kUInt8);
  ExpectWidened<std::uint16_t>(DType::kUInt16);
  ExpectWidened<std::uint32_t>(DType::kUInt32);
  ExpectWidened<std::int16_t>(DType::kInt16);
  ExpectWidened<std::int32_t>(DType::kInt32);
  ExpectWidened<std::int64_t>(DType::kInt64);
}

TEST(WidenAndMax, ANegativeTokenIsLargerThanEveryVocabulary) {
  const std::int32_t tokens[] = {1, -1, 5};
  std::vector<std::int64_t> out(3);
  EXPECT_GE(WidenAndMax(DType::kInt32, reinterpret_cast<const std::byte*>(tokens), out),
            std::uint64_t{1} << 31);
  EXPECT_EQ(out[1], -1);
}

}  // namespace
}  // namespace ait::internal

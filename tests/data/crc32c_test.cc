// SPDX-License-Identifier: Apache-2.0
#include "ait/data/crc32c.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "data/crc32c_internal.h"

namespace ait {
namespace {

std::uint32_t CrcOf(std::string_view text) { return Crc32c(std::as_bytes(std::span(text))); }

// Vectors of RFC 3720, appendix B.4, and the check value of the polynomial.
TEST(Crc32c, AgreesWithPublishedVectors) {
  EXPECT_EQ(CrcOf(""), 0u);
  EXPECT_EQ(CrcOf("123456789"), 0xe3069283u);
  EXPECT_EQ(CrcOf(std::string(32, '\0')), 0x8a9136aau);
  EXPECT_EQ(CrcOf(std::string(32, '\xff')), 0x62a8ab43u);
  std::string rising;
  for (char c = 0; c < 32; ++c) rising += c;
  EXPECT_EQ(CrcOf(rising), 0x46dd794eu);
}

TEST(Crc32c, GoesOnFromAnEarlierPart) {
  const std::string text = "a text of some length that is cut at every place";
  for (std::size_t cut = 0; cut <= text.size(); ++cut) {
    const auto bytes = std::as_bytes(std::span(text));
    EXPECT_EQ(Crc32c(bytes.subspan(cut), Crc32c(bytes.first(cut))), CrcOf(text));
  }
}

TEST(Crc32c, TableAndInstructionAgree) {
  if (!internal::HasCrc32cInstruction()) return;  // then the table is all there is
  std::string text;
  for (int i = 0; i < 300; ++i) {
    const auto bytes = std::as_bytes(std::span(text));
    EXPECT_EQ(internal::Crc32cByTable(bytes, 17), internal::Crc32cByInstruction(bytes, 17));
    text += static_cast<char>(i * 37 + 11);
  }
}

TEST(Crc32c, TableAndInstructionAgreeOnLongTexts) {
  std::string text;
  for (int i = 0; i < 30'000; ++i) text += static_cast<char>(i * i >> 3);
  for (const std::size_t length : {767, 768, 769, 1536, 4096, 12287, 12288, 12289, 13056, 29'991}) {
    for (const std::size_t from : {0, 1, 7}) {
      const auto bytes = std::as_bytes(std::span(text)).subspan(from, length);
      EXPECT_EQ(internal::Crc32cByTable(bytes, 17), internal::Crc32cByInstruction(bytes, 17))
          << length;
    }
  }
}

TEST(Crc32c, ChangesWithEveryBit) {
  std::string text(100, 'x');
  const std::uint32_t before = CrcOf(text);
  for (std::size_t bit = 0; bit < 800; ++bit) {
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8)));
    EXPECT_NE(CrcOf(text), before);
    text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << (bit % 8)));
  }
}

}  // namespace
}  // namespace ait

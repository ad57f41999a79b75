// SPDX-License-Identifier: Apache-2.0
#include "comm/tcp_store_frame.h"

#include <random>

#include "support/status_matchers.h"

namespace ait::internal {
namespace {

using ::ait::testing::StatusIs;
using ::testing::HasSubstr;

std::string Bytes(const Frame& frame) {
  std::string bytes;
  AppendFrame(frame, bytes);
  return bytes;
}

TEST(Frame, ComesBackAsItWasSent) {
  const Frame sent{FrameType::kSet, 0xfedcba9876543210, -7, "key", std::string("\0value", 6)};
  const std::string bytes = Bytes(sent) + Bytes({.type = FrameType::kGoodbye});
  std::size_t position = 0;
  Frame got;
  ASSERT_OK_AND_ASSIGN(const Parsed first, ParseFrame(bytes, &position, kMaxFrame, &got));
  EXPECT_EQ(first, Parsed::kFrame);
  EXPECT_EQ(got.type, sent.type);
  EXPECT_EQ(got.id, sent.id);
  EXPECT_EQ(got.number, sent.number);
  EXPECT_EQ(got.key, sent.key);
  EXPECT_EQ(got.value, sent.value);
  ASSERT_OK_AND_ASSIGN(const Parsed second, ParseFrame(bytes, &position, kMaxFrame, &got));
  EXPECT_EQ(second, Parsed::kFrame);
  EXPECT_EQ(got.type, FrameType::kGoodbye);
  EXPECT_EQ(position, bytes.size());
}

TEST(Frame, LayoutIsFixed) {
  const std::string expected(
      "\x18\0\0\0\x02\x01\0\0\0\0\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff"
      "\x01\0\0\0kvv",
      28);
  EXPECT_EQ(Bytes({FrameType::kSet, 1, -1, "k", "vv"}), expected);
}

TEST(Frame, EveryTruncationIsIncomplete) {
  const std::string bytes = Bytes({FrameType::kSet, 1, 2, "key", "value"});
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    std::size_t position = 0;
    Frame got;
    ASSERT_OK_AND_ASSIGN(const Parsed parsed, ParseFrame(std::string_view(bytes).substr(0, length),
                                                         &position, kMaxFrame, &got));
    EXPECT_EQ(parsed, Parsed::kIncomplete) << length;
    EXPECT_EQ(position, 0U);
  }
}

TEST(Frame, RefusesLengthsBeforeTheBytesCome) {
  std::size_t position = 0;
  Frame got;
  EXPECT_THAT(ParseFrame(std::string("\xff\xff\xff\x7f", 4), &position, kMaxFrame, &got),
              StatusIs(StatusCode::kDataLoss, HasSubstr("2147483647")));
  EXPECT_THAT(ParseFrame(std::string("\x14\0\0\0", 4), &position, kMaxFrame, &got),
              StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(ParseFrame(Bytes({.value = std::string(100, 'x')}), &position, 64, &got),
              StatusIs(StatusCode::kDataLoss));
}

TEST(Frame, SurvivesFlippedAndRandomBytes) {
  const std::string good = Bytes({FrameType::kSet, 1, 2, "key", "value"});
  std::mt19937 random(20240607);
  for (int round = 0; round < 20000; ++round) {
    std::string bytes = good;
    if (round % 2 == 0) {
      for (char& byte : bytes) byte = static_cast<char>(random());
      bytes[2] = bytes[3] = 0;
    } else {
      bytes[random() % bytes.size()] ^= static_cast<char>(1U << (random() % 8));
    }
    std::size_t position = 0;
    Frame got;
    const StatusOr<Parsed> parsed = ParseFrame(bytes, &position, kMaxFrame, &got);
    EXPECT_LE(position, parsed.ok() ? bytes.size() : 0);
  }
}

}  // namespace
}  // namespace ait::internal

// SPDX-License-Identifier: Apache-2.0
#include "ait/parallel/compression_state.h"

#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::testing::HasSubstr;

CompressionState Example() {
  return {.method = "powersgd",
          .rank = 2,
          .world_size = 3,
          .step = 1234567890123,
          .entries = {{"up.weight", "residual", {1.5f, -2, 1e-40f}},
                      {"up.weight", "factor", {3}},
                      {"", "residual", {}}}};
}

TEST(CompressionState, SurvivesAsBytes) {
  for (const CompressionState& state : {Example(), CompressionState()}) {
    ASSERT_OK_AND_ASSIGN(const CompressionState read, CompressionState::FromBytes(state.ToBytes()));
    EXPECT_EQ(read, state);
  }
}

TEST(CompressionState, HasTheDocumentedBytes) {
  const CompressionState state = {
      .method = "m", .rank = 1, .world_size = 2, .step = 3, .entries = {{"p", "k", {1.0f}}}};
  const std::string bytes = state.ToBytes();
  const std::string expected(
      "aitcompr\1\0\0\0\1\0\0\0m\1\0\0\0\2\0\0\0\3\0\0\0\0\0\0\0\1\0\0\0"
      "\1\0\0\0p\1\0\0\0k\1\0\0\0\0\0\0\0\0\0\x80\x3f",
      8 + 4 + 5 + 4 + 4 + 8 + 4 + 5 + 5 + 8 + 4);
  EXPECT_EQ(bytes.substr(0, expected.size()), expected);
  EXPECT_EQ(bytes.size(), expected.size() + 8);
}

TEST(CompressionState, RefusesEveryCutAndEveryChangedByte) {
  const std::string bytes = Example().ToBytes();
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(CompressionState::FromBytes(bytes.substr(0, size)).ok()) << size;
  }
  for (std::size_t i = 0; i < bytes.size(); ++i) {
    std::string changed = bytes;
    changed[i] = static_cast<char>(changed[i] ^ 0x10);
    EXPECT_FALSE(CompressionState::FromBytes(changed).ok()) << i;
  }
  EXPECT_THAT(CompressionState::FromBytes(bytes + "x"), StatusIs(StatusCode::kDataLoss));
}

TEST(CompressionState, SaysWhatIsWrong) {
  EXPECT_THAT(CompressionState::FromBytes("PK\3\4 and more"),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("aitcompr")));
  std::string newer = Example().ToBytes();
  newer[8] = 2;
  EXPECT_THAT(CompressionState::FromBytes(newer),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("version 2; this program reads "
                                                               "version 1")));
  CompressionState impossible = Example();
  impossible.rank = 3;
  EXPECT_THAT(CompressionState::FromBytes(impossible.ToBytes()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("rank 3 of 3")));
}

}  // namespace
}  // namespace ait

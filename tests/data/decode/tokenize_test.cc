// SPDX-License-Identifier: Apache-2.0
#include "ait/data/decode/tokenize.h"

#include <gtest/gtest.h>

#include "support/status_matchers.h"

namespace ait {
namespace {

using ::testing::ElementsAre;
using testing::StatusIs;

Sample WithText(std::string_view text) {
  Sample sample;
  sample.Set({.name = "txt", .value = ByteView::Copy(text), .kind = FieldKind::kText});
  return sample;
}

TEST(TokenizeTest, TextBecomesAnArray) {
  Sample sample = WithText("abc");
  SampleRandom random(0, 0, 0, 0);
  const Transform tokenize = Tokenize(
      {.tokenizer = Tokenizer::Bytes(), .prepend = {1}, .append = {2}, .dtype = DType::kUInt16});
  ASSERT_OK(tokenize(sample, random));
  ASSERT_EQ(sample.fields.size(), 1u);
  const SampleField& tokens = sample.fields[0];
  EXPECT_EQ(tokens.name, "tokens");
  EXPECT_THAT(tokens.shape, ElementsAre(5));
  EXPECT_EQ(tokens.value.text(), std::string("\1\0a\0b\0c\0\2\0", 10));
}

TEST(TokenizeTest, ItIsCutAndRefused) {
  SampleRandom random(0, 0, 0, 0);
  Sample sample = WithText("abc");
  ASSERT_OK(Tokenize({.tokenizer = Tokenizer::Bytes(), .max_length = 2})(sample, random));
  EXPECT_THAT(sample.fields[0].shape, ElementsAre(2));
  sample = WithText("abc");
  EXPECT_THAT(Tokenize({})(sample, random), StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(Tokenize({.field = "x", .tokenizer = Tokenizer::Bytes()})(sample, random),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_THAT(Tokenize({.tokenizer = Tokenizer::Bytes(), .append = {300}, .dtype = DType::kUInt8})(
                  sample, random),
              StatusIs(StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace ait

// SPDX-License-Identifier: Apache-2.0
#include "ait/data/decode/field_transforms.h"

#include <gtest/gtest.h>

#include <cstring>

#include "support/status_matchers.h"

namespace ait {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

Sample WithText(const std::string& name, std::string_view text) {
  Sample sample{.key = "a/0001"};
  sample.Set({.name = name, .value = ByteView::Copy(text)});
  return sample;
}

Status Apply(const Transform& transform, Sample& sample) {
  SampleRandom random(0, 0, 0, 0);
  return transform(sample, random);
}

TEST(FieldTransformsTest, ALabelBecomesOneHot) {
  Sample sample = WithText("cls", " 7\n");
  const Transform label = Chain({ParseInteger({.output = "label", .end = 10}),
                                 OneHot({.field = "label", .output = "hot", .classes = 10}),
                                 ConvertType({.field = "hot", .dtype = DType::kUInt8}),
                                 Pad({.field = "hot", .pad = {.length = 12}})});
  ASSERT_OK(Apply(label, sample));
  ASSERT_EQ(sample.fields.size(), 1u);
  EXPECT_EQ(sample.fields[0].name, "hot");
  EXPECT_EQ(sample.fields[0].value.text(), std::string("\0\0\0\0\0\0\0\1\0\0\0\0", 12));
}

TEST(FieldTransformsTest, WhatIsNoIntegerIsABadSample) {
  for (const std::string text :
       {"", " ", "x", "7x", "7 8", "0x7", "+7", "7.0", "99999999999999999999", "-1", "10"}) {
    Sample sample = WithText("cls", text);
    EXPECT_THAT(Apply(ParseInteger({.end = 10}), sample), StatusIs(StatusCode::kInvalidArgument))
        << text;
  }
  Sample sample = WithText("cls", "-3");
  ASSERT_OK(Apply(ParseInteger({.dtype = DType::kInt8, .begin = -5}), sample));
  EXPECT_EQ(sample.fields[0].value.text(), "\xfd");
  EXPECT_TRUE(sample.fields[0].shape.empty());
}

TEST(FieldTransformsTest, FieldsAreRenamedSelectedAndDropped) {
  Sample sample = WithText("a", "1");
  sample.Set({.name = "b", .value = ByteView::Copy("2")});
  sample.Set({.name = "c", .value = ByteView::Copy("3")});
  ASSERT_OK(Apply(Rename("a", "b"), sample));
  ASSERT_EQ(sample.fields.size(), 2u);
  EXPECT_EQ(sample.Find("b")->value.text(), "1");
  ASSERT_OK(Apply(Rename("b", "b"), sample));
  EXPECT_EQ(sample.Find("b")->value.text(), "1");
  ASSERT_OK(Apply(Select({"c", "b"}), sample));
  EXPECT_EQ(sample.fields[0].name, "c");
  ASSERT_OK(Apply(Drop({"c", "none"}), sample));
  ASSERT_EQ(sample.fields.size(), 1u);
  EXPECT_THAT(
      Apply(Select({"c"}), sample),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("sample a/0001 has no field c; it has b")));
}

}  // namespace
}  // namespace ait

// SPDX-License-Identifier: Apache-2.0
#include "ait/data/sample.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

namespace ait {
namespace {

Sample WithFields() {
  Sample sample{.id = 3, .key = "a/b"};
  sample.Set({.name = "jpg", .value = ByteView::Copy("image")});
  sample.Set({.name = "cls", .value = ByteView::Copy("7"), .kind = FieldKind::kText});
  return sample;
}

TEST(SampleTest, FindsFieldsByTheirWholeName) {
  const Sample sample = WithFields();
  ASSERT_NE(sample.Find("cls"), nullptr);
  EXPECT_EQ(sample.Find("cls")->value.text(), "7");
  EXPECT_EQ(sample.Find("jp"), nullptr);
  EXPECT_EQ(sample.size_bytes(), 6);
}

TEST(SampleTest, SettingReplacesWhereItWas) {
  Sample sample = WithFields();
  sample.Set({.name = "jpg", .value = ByteView::Copy("x")});
  ASSERT_EQ(sample.fields.size(), 2u);
  EXPECT_EQ(sample.fields[0].value.text(), "x");
}

TEST(SampleTest, RemovingIsQuietAboutWhatIsMissing) {
  Sample sample = WithFields();
  sample.Remove("png");
  sample.Remove("jpg");
  ASSERT_EQ(sample.fields.size(), 1u);
  EXPECT_EQ(sample.fields[0].name, "cls");
}

TEST(SampleTest, CountsElements) {
  EXPECT_EQ(ElementCount({}), 1);
  EXPECT_EQ(ElementCount({3, 0, 5}), 0);
  EXPECT_EQ(ElementCount({28, 28, 3}), 2352);
  EXPECT_EQ(ElementCount({-1}), -1);
  EXPECT_EQ(ElementCount({std::numeric_limits<std::int64_t>::max(), 2}), -1);
}

TEST(SampleTest, AnArrayOwnsItsNumbers) {
  std::vector<float> values = {1, 2, 3, 4};
  const SampleField field =
      ArrayField("x", DType::kFloat32, {2, 2}, std::as_bytes(std::span(values)));
  values.assign(4, 0);
  const auto* kept = reinterpret_cast<const float*>(field.value.data());
  EXPECT_EQ(std::vector<float>(kept, kept + 4), (std::vector<float>{1, 2, 3, 4}));
  EXPECT_EQ(field.kind, FieldKind::kArray);
}

}  // namespace
}  // namespace ait

// SPDX-License-Identifier: Apache-2.0
#include "ait/data/loader/collate.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <vector>

#include "ait/base/float16.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::StatusIs;

class Arrays final : public BatchBuilder {
 public:
  struct Array {
    DType dtype;
    std::vector<std::int64_t> shape;
    std::vector<std::byte> bytes;
  };
  using BatchBuilder::Add;
  StatusOr<std::span<std::byte>> Add(std::string_view name, DType dtype,
                                     std::span<const std::int64_t> shape) override {
    Array& array = arrays[std::string(name)];
    array = {dtype, {shape.begin(), shape.end()}, {}};
    array.bytes.resize(static_cast<std::size_t>(ElementCount(array.shape) * SizeOf(dtype)),
                       std::byte{0xee});
    return std::span(array.bytes);
  }
  void Drop(std::string_view field) override { dropped.emplace_back(field); }

  template <typename T>
  std::vector<T> Values(const std::string& name) {
    const auto* begin = reinterpret_cast<const T*>(arrays.at(name).bytes.data());
    return std::vector<T>(begin, begin + arrays.at(name).bytes.size() / sizeof(T));
  }

  std::map<std::string, Array> arrays;
  std::vector<std::string> dropped;
};

template <typename T>
SampleField Numbers(std::string name, std::vector<std::int64_t> shape, std::vector<T> values) {
  return ArrayField(std::move(name), kDTypeOf<T>, std::move(shape),
                    std::as_bytes(std::span(values)));
}

using Shape = std::vector<std::int64_t>;

TEST(StackTest, PutsEqualArraysBehindEachOther) {
  const std::vector<Sample> samples = {
      {.id = 0, .fields = {Numbers<float>("x", {2}, {1, 2}), Numbers<std::int64_t>("y", {}, {7})}},
      {.id = 1, .fields = {Numbers<std::int64_t>("y", {}, {8}), Numbers<float>("x", {2}, {3, 4})}}};
  const std::vector<float> weights(2, 1.0F);
  Arrays out;
  ASSERT_OK(Stack()({samples, weights, {}}, out));
  EXPECT_EQ(out.arrays.at("x").shape, (Shape{2, 2}));
  EXPECT_THAT(out.Values<float>("x"), ElementsAre(1, 2, 3, 4));
  EXPECT_EQ(out.arrays.at("y").shape, (Shape{2}));
  EXPECT_THAT(out.Values<std::int64_t>("y"), ElementsAre(7, 8));
  EXPECT_THAT(out.dropped, ElementsAre("x", "y"));
}

TEST(StackTest, LeavesWhatDoesNotFit) {
  const std::vector<Sample> samples = {
      {.fields = {Numbers<float>("shape", {2}, {1, 2}),
                  Numbers<float>("dtype", {1}, {1}),
                  Numbers<float>("missing", {1}, {1}),
                  Numbers<float>("short", {1}, {1}),
                  {.name = "text", .value = ByteView::Copy("a"), .kind = FieldKind::kText}}},
      {.fields = {Numbers<float>("shape", {1}, {1}),
                  Numbers<double>("dtype", {1}, {1}),
                  {.name = "short",
                   .value = ByteView::Copy("abc"),
                   .kind = FieldKind::kArray,
                   .dtype = DType::kFloat32,
                   .shape = {1}},
                  {.name = "text", .value = ByteView::Copy("b"), .kind = FieldKind::kText}}}};
  const std::vector<float> weights(2, 1.0F);
  Arrays out;
  ASSERT_OK(Stack()({samples, weights, {}}, out));
  EXPECT_TRUE(out.arrays.empty());
  EXPECT_TRUE(out.dropped.empty());
  for (const char* name : {"shape", "dtype", "missing", "short", "text", "nowhere"}) {
    EXPECT_THAT(Stack({.required = {name}})({samples, weights, {}}, out),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr(name)));
  }
}

TEST(StackTest, PadsToTheLongestAndTellsWhere) {
  const std::vector<Sample> samples = {{.fields = {Numbers<std::int32_t>("t", {1}, {5})}},
                                       {.fields = {Numbers<std::int32_t>("t", {3}, {6, 7, 8})}},
                                       {.fields = {Numbers<std::int32_t>("t", {0}, {})}}};
  const std::vector<float> weights(3, 1.0F);
  const CollateInput input = {samples, weights, {}};
  Arrays out;
  ASSERT_OK(
      Stack({.padding = {{.field = "t", .value = -1, .mask = PaddingMask::kLengths}}})(input, out));
  EXPECT_EQ(out.arrays.at("t").shape, (Shape{3, 3}));
  EXPECT_THAT(out.Values<std::int32_t>("t"), ElementsAre(5, -1, -1, 6, 7, 8, -1, -1, -1));
  EXPECT_THAT(out.Values<std::int64_t>("t.length"), ElementsAre(1, 3, 0));
  ASSERT_OK(Stack({.padding = {{.field = "t", .multiple_of = 4, .mask = PaddingMask::kMask}}})(
      input, out));
  EXPECT_THAT(out.Values<std::int32_t>("t"), ElementsAre(5, 0, 0, 0, 6, 7, 8, 0, 0, 0, 0, 0));
  EXPECT_THAT(out.Values<bool>("t.mask"), ElementsAre(1, 0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0));
  ASSERT_OK(Stack({.padding = {{.field = "t", .length = 5}}})(input, out));
  EXPECT_EQ(out.arrays.at("t").shape, (Shape{3, 5}));
  EXPECT_THAT(Stack({.padding = {{.field = "t", .length = 2}}, .required = {"t"}})(input, out),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("length of 3")));
}

TEST(StackTest, PadsEveryDtypeWithTheNearestNumber) {
  const std::vector<float> weights(2, 1.0F);
  const auto padded = [&]<typename T>(T, double value) {
    const std::vector<Sample> samples = {{.fields = {Numbers<T>("t", {0}, {})}},
                                         {.fields = {Numbers<T>("t", {1}, {T()})}}};
    Arrays out;
    EXPECT_OK(Stack({.padding = {{.field = "t", .value = value}}})({samples, weights, {}}, out));
    return out.Values<T>("t").at(0);
  };
  EXPECT_EQ(padded(std::uint8_t{}, 300), 255);
  EXPECT_EQ(padded(std::uint8_t{}, -1), 0);
  EXPECT_EQ(padded(std::int64_t{}, 1e30), std::numeric_limits<std::int64_t>::max());
  EXPECT_EQ(padded(std::int64_t{}, -1e30), std::numeric_limits<std::int64_t>::min());
  EXPECT_EQ(padded(std::int32_t{}, -100), -100);
  EXPECT_EQ(padded(std::uint16_t{}, 65535), 65535);
  EXPECT_EQ(padded(float{}, 0.1), 0.1F);
  EXPECT_EQ(padded(double{}, -0.0), 0.0);
  EXPECT_EQ(static_cast<float>(padded(Float16{}, 1.5)), 1.5F);
  EXPECT_EQ(static_cast<float>(padded(BFloat16{}, -2)), -2.0F);
}

TEST(StackTest, PacksSamplesIntoRows) {
  const std::vector<Sample> samples = {{.fields = {Numbers<std::int64_t>("t", {2}, {1, 2})}},
                                       {.fields = {Numbers<std::int64_t>("t", {1}, {3})}},
                                       {.fields = {Numbers<std::int64_t>("t", {2}, {4, 5})}}};
  const std::vector<float> weights(3, 1.0F);
  const std::vector<std::int64_t> row_begins = {0, 2, 3};
  Arrays out;
  ASSERT_OK(Stack()({samples, weights, row_begins}, out));
  EXPECT_EQ(out.arrays.at("t").shape, (Shape{2, 3}));
  EXPECT_THAT(out.Values<std::int64_t>("t"), ElementsAre(1, 2, 3, 4, 5, 0));
  EXPECT_THAT(out.Values<std::int32_t>("t.segments"), ElementsAre(1, 1, 2, 1, 1, 0));
}

}  // namespace
}  // namespace ait

// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>
#include <gtest/gtest.h>

// Keep the order.
#include "parallel/swapped_storage_internal.h"
// clang-format off
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
// clang-format on

#include <algorithm>
#include <vector>

#include "support/status_matchers.h"
#include "tensor/catch.h"

namespace ait::internal {
namespace {

using ::ait::testing::StatusIs;
using ::testing::HasSubstr;

class SwappedStorageTest : public ::testing::Test {
 protected:
  std::vector<float> one_ = std::vector<float>(64, 1);
  std::vector<float> two_ = std::vector<float>(64, 2);
  SwappedStorage storage_{256, "unit blocks.3 is not gathered"};
  at::Tensor view_ = storage_.View(DType::kFloat32, {4, 3}, {3, 1}, 8);
};

TEST_F(SwappedStorageTest, TensorsSeeTheDataThatIsThereNow) {
  const at::Tensor transposed = view_.t();
  storage_.Set(one_.data());
  one_[8] = 5;
  EXPECT_EQ(view_.sum().item<float>(), 16);
  EXPECT_EQ(transposed.const_data_ptr(), &one_[8]);
  storage_.Set(two_.data());
  EXPECT_EQ(view_.sum().item<float>(), 24);
  EXPECT_EQ(transposed.sum().item<float>(), 24);
  view_.fill_(3);
  EXPECT_EQ(std::ranges::count(two_, 3.0f), 12);
}

// Kernels reach the data in several ways: typed, untyped, for reading, for writing.
TEST_F(SwappedStorageTest, EveryAccessThrowsWhileItIsAway) {
  storage_.Set(one_.data());
  storage_.Clear();
  const at::Tensor x = at::ones({2, 3});
  const auto away = StatusIs(StatusCode::kUnknown, HasSubstr("unit blocks.3 is not gathered"));
  EXPECT_THAT(CatchAsStatus([&] { (void)view_.add(1); }), away);
  EXPECT_THAT(CatchAsStatus([&] { (void)view_.sum(); }), away);
  EXPECT_THAT(CatchAsStatus([&] { (void)at::linear(x, view_); }), away);
  EXPECT_THAT(CatchAsStatus([&] { (void)x.mm(view_.t()); }), away);
  EXPECT_THAT(CatchAsStatus([&] { (void)view_.clone(); }), away);
  EXPECT_THAT(CatchAsStatus([&] { (void)view_[0][0].item<float>(); }), away);
  EXPECT_THAT(CatchAsStatus([&] { view_.fill_(0); }), away);
  EXPECT_THAT(CatchAsStatus([&] { view_.t().copy_(x.sum()); }), away);
  EXPECT_THAT(CatchAsStatus([&] { (void)view_.data_ptr(); }), away);
  EXPECT_THAT(CatchAsStatus([&] { (void)view_.const_data_ptr<float>(); }), away);
  EXPECT_THAT(CatchAsStatus([&] { (void)view_.mutable_data_ptr<float>(); }), away);
  storage_.Set(one_.data());
  EXPECT_EQ(view_.sum().item<float>(), 12);
}

TEST_F(SwappedStorageTest, ShapesAndViewsNeedNoData) {
  EXPECT_EQ(view_.t().size(0), 3);
  EXPECT_EQ(view_.narrow(0, 1, 2).storage_offset(), 11);
  EXPECT_TRUE(storage_.Holds(view_.t()));
  EXPECT_FALSE(storage_.Holds(at::ones({1})));
}

// What autograd saves of a parameter is a tensor over the same storage.
TEST_F(SwappedStorageTest, BackwardReadsWhatIsThereThen) {
  at::Tensor weight = at::ones({4, 3}).set_requires_grad(true);
  weight.set_data(view_);
  const at::Tensor x = at::ones({2, 3}).set_requires_grad(true);
  storage_.Set(one_.data());
  const at::Tensor loss = at::linear(x, weight).sum();
  storage_.Clear();
  EXPECT_THAT(CatchAsStatus([&] { loss.backward({}, /*retain_graph=*/true); }),
              StatusIs(StatusCode::kUnknown, HasSubstr("unit blocks.3 is not gathered")));
  storage_.Set(two_.data());
  loss.backward();
  EXPECT_EQ(x.grad().sum().item<float>(), 2 * 3 * 4 * 2);
  EXPECT_EQ(weight.grad().sum().item<float>(), 24);
}

TEST_F(SwappedStorageTest, TheTextCanChange) {
  storage_.Clear("the engine has gone");
  EXPECT_THAT(CatchAsStatus([&] { (void)view_.sum(); }),
              StatusIs(StatusCode::kUnknown, HasSubstr("the engine has gone")));
}

}  // namespace
}  // namespace ait::internal

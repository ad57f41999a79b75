// SPDX-License-Identifier: Apache-2.0
#include "ait/tensor/empty.h"

#include <ATen/core/ivalue.h>
// Keep the order.
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>

#include <array>
#include <cstdint>

#include "ait/memory/heap.h"
#include "ait/memory/shared_arena.h"
#include "ait/memory/statistics.h"
#include "ait/tensor/view.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::testing::AllOf;
using ::testing::HasSubstr;

class EmptyTest : public ::testing::Test {
 protected:
  const std::shared_ptr<StatisticsResource> memory_ =
      StatisticsResource::Create(HeapResource::Create());
};

TEST_F(EmptyTest, IsATensorAsAnyOther) {
  ASSERT_OK_AND_ASSIGN(at::Tensor tensor, Empty({3, 4}, DType::kFloat32, memory_));
  EXPECT_EQ(tensor.sizes(), (at::IntArrayRef{3, 4}));
  EXPECT_EQ(tensor.strides(), (at::IntArrayRef{4, 1}));
  EXPECT_EQ(tensor.scalar_type(), at::kFloat);
  EXPECT_TRUE(tensor.device().is_cpu());
  EXPECT_FALSE(tensor.requires_grad());
  tensor.fill_(2);
  EXPECT_EQ(tensor.mul(3).sum().item<float>(), 72);
  tensor.set_requires_grad(true);
  tensor.mul(tensor).sum().backward();
  EXPECT_TRUE(tensor.grad().equal(at::ones({3, 4}).mul(4)));
}

TEST_F(EmptyTest, HoldsAllDtypes) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16, DType::kInt64, DType::kBool}) {
    ASSERT_OK_AND_ASSIGN(const at::Tensor tensor, Empty({5}, dtype, memory_));
    ASSERT_OK_AND_ASSIGN(const Buffer buffer, View(tensor));
    EXPECT_EQ(buffer.dtype, dtype);
    EXPECT_EQ(memory_->statistics().current_bytes, 5 * SizeOf(dtype));
  }
}

TEST_F(EmptyTest, GivesItsMemoryBackWithTheLastView) {
  at::Tensor part;
  {
    ASSERT_OK_AND_ASSIGN(const at::Tensor tensor, Empty({100}, DType::kFloat32, memory_));
    EXPECT_EQ(memory_->statistics().current_bytes, 400);
    part = tensor.narrow(0, 10, 5);
  }
  EXPECT_EQ(memory_->statistics().current_bytes, 400);
  part = at::Tensor();
  EXPECT_EQ(memory_->statistics().current_bytes, 0);
}

TEST_F(EmptyTest, KeepsTheResourceAlive) {
  std::weak_ptr<HeapResource> resource;
  at::Tensor tensor;
  {
    const auto heap = HeapResource::Create();
    resource = heap;
    ASSERT_OK_AND_ASSIGN(tensor, Empty({1000}, DType::kFloat32, heap));
  }
  EXPECT_FALSE(resource.expired());
  tensor.fill_(1);
  tensor = at::Tensor();
  EXPECT_TRUE(resource.expired());
}

TEST_F(EmptyTest, LiesInTheResource) {
  ASSERT_OK_AND_ASSIGN(const auto arena, SharedArena::Create({.capacity = MiB(1)}));
  ASSERT_OK_AND_ASSIGN(const at::Tensor tensor, Empty({8, 8}, DType::kFloat32, arena));
  EXPECT_TRUE(arena->Contains(tensor.data_ptr(), 256));
}

TEST_F(EmptyTest, MayHaveNoElementsOrNoDimensions) {
  ASSERT_OK_AND_ASSIGN(const at::Tensor none, Empty({4, 0}, DType::kFloat32, memory_));
  EXPECT_EQ(none.numel(), 0);
  EXPECT_EQ(memory_->statistics().total_count, 0);
  ASSERT_OK_AND_ASSIGN(at::Tensor scalar, Empty({}, DType::kInt64, memory_));
  EXPECT_EQ(scalar.dim(), 0);
  scalar.fill_(7);
  EXPECT_EQ(scalar.item<std::int64_t>(), 7);
}

TEST_F(EmptyTest, CannotGrow) {
  ASSERT_OK_AND_ASSIGN(at::Tensor tensor, Empty({4}, DType::kFloat32, memory_));
  tensor.resize_({2});
  EXPECT_THROW(tensor.resize_({400}), c10::Error);
}

TEST_F(EmptyTest, RefusesShapesThatAreNone) {
  EXPECT_THAT(Empty({3, -2}, DType::kFloat32, memory_),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("float32"), HasSubstr("(3, -2)"), HasSubstr("-2 is neg"))));
  constexpr std::int64_t kBig = std::int64_t{1} << 40;
  EXPECT_THAT(Empty({kBig, kBig}, DType::kFloat32, memory_),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("overflow")));
  EXPECT_THAT(Empty({0, kBig, kBig}, DType::kFloat32, memory_),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("overflow")));
  EXPECT_THAT(Empty({kBig, 128}, DType::kInt64, memory_),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("overflow")));
  EXPECT_EQ(memory_->statistics().total_count, 0);
}

TEST_F(EmptyTest, SaysWhatTheResourceSays) {
  EXPECT_THAT(Empty({2}, DType::kFloat32, MemoryHandle()),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("empty")));
  ASSERT_OK_AND_ASSIGN(const auto arena, SharedArena::Create({.capacity = MiB(1)}));
  EXPECT_THAT(Empty({1 << 20}, DType::kFloat32, arena),
              StatusIs(StatusCode::kResourceExhausted,
                       AllOf(HasSubstr("shape (1048576)"), HasSubstr("arena"))));
}

}  // namespace
}  // namespace ait

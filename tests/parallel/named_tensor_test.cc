// SPDX-License-Identifier: Apache-2.0
#include "ait/parallel/named_tensor.h"

#include <utility>

#include "parallel/tiny_model.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

TEST(NamedTensors, HoldsTheTensorsThemselvesInOrder) {
  const at::Tensor a = ::ait::testing::Values({2, 3}, 1);
  const at::Tensor b = ::ait::testing::Values({}, 2);
  NamedTensors list;
  EXPECT_TRUE(list.empty());
  list.Add("a", a);
  list.Add("b", b);
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list.name(1), "b");
  EXPECT_TRUE(list.tensor(0).is_same(a));
  const NamedTensors copy = list;
  const NamedTensors moved = std::move(list);
  EXPECT_TRUE(copy.tensor(1).is_same(b));
  EXPECT_TRUE(moved.tensor(1).is_same(b));
}

}  // namespace
}  // namespace ait

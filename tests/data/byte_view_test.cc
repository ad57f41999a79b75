// SPDX-License-Identifier: Apache-2.0
#include "ait/data/byte_view.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

namespace ait {
namespace {

TEST(ByteViewTest, TheDefaultIsEmpty) {
  const ByteView view;
  EXPECT_TRUE(view.is_empty());
  EXPECT_EQ(view.text(), "");
  EXPECT_EQ(view.owner(), nullptr);
}

TEST(ByteViewTest, ASliceKeepsTheWholeBlockAlive) {
  auto block = std::make_shared<std::string>("header and body");
  const std::weak_ptr<std::string> alive = block;
  ByteView body;
  {
    const ByteView whole(std::as_bytes(std::span(*block)), block);
    block.reset();
    body = whole.Slice(11, 4);
  }
  EXPECT_FALSE(alive.expired());
  EXPECT_EQ(body.text(), "body");
  body = ByteView();
  EXPECT_TRUE(alive.expired());
}

TEST(ByteViewTest, ACopyIsIndependentOfItsOrigin) {
  std::string origin = "abc";
  const ByteView copy = ByteView::Copy(origin);
  origin = "xyz";
  EXPECT_EQ(copy.text(), "abc");
}

TEST(ByteViewTest, ACopyOfNothingIsEmpty) {
  EXPECT_TRUE(ByteView::Copy(std::string_view()).is_empty());
}

}  // namespace
}  // namespace ait

// SPDX-License-Identifier: Apache-2.0
#include "base/memory_refusal.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace ait::internal {
namespace {

TEST(MemoryRefusal, GoesThroughAnnotations) {
  const Status status =
      Annotate(WithRefusal(ResourceExhaustedError("no room"), {.on_device = true, .asked = KiB(3)}),
               "rank 1");
  EXPECT_EQ(Message(status), "rank 1: no room");
  const auto refusal = RefusalOf(status);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_TRUE(refusal->on_device);
  EXPECT_EQ(refusal->asked, KiB(3));
}

TEST(MemoryRefusal, TheFirstOneStays) {
  Status status = WithRefusal(ResourceExhaustedError("no room"), {.asked = Bytes(1)});
  status = WithRefusal(status, {.asked = Bytes(2)});
  EXPECT_EQ(RefusalOf(status)->asked, Bytes(1));
}

TEST(MemoryRefusal, WhatIsNotAboutMemoryHasNone) {
  EXPECT_FALSE(RefusalOf(OkStatus()).has_value());
  EXPECT_TRUE(WithRefusal(OkStatus(), {}).ok());
  EXPECT_FALSE(RefusalOf(ErrnoError(ENOSPC, "write")).has_value());
  EXPECT_FALSE(RefusalOf(AbortedError("Cannot allocate memory")).has_value());
}

TEST(MemoryRefusal, TheSystemsOwnErrorCounts) {
  const auto refusal = RefusalOf(ErrnoError(ENOMEM, "mmap"));
  ASSERT_TRUE(refusal.has_value());
  EXPECT_FALSE(refusal->asked.has_value());
}

TEST(MemoryRefusal, BytesMayBeUnknown) {
  EXPECT_FALSE(RefusalOf(WithRefusal(ResourceExhaustedError("x"), {}))->asked.has_value());
}

}  // namespace
}  // namespace ait::internal

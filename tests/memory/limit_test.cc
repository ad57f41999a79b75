// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "ait/memory/buffer.h"
#include "ait/memory/heap.h"
#include "ait/memory/statistics.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::testing::HasSubstr;

std::shared_ptr<LimitResource> Limited(std::int64_t limit) {
  return LimitResource::Create(HeapResource::Create(), {.limit = Bytes(limit)}).value();
}

TEST(LimitResource, AllowsUpToTheLimitAndNotAByteMore) {
  const auto limited = Limited(1000);
  ASSERT_OK_AND_ASSIGN(HostBuffer first, HostBuffer::Create(limited, 600));
  ASSERT_OK_AND_ASSIGN(const HostBuffer second, HostBuffer::Create(limited, 400));
  EXPECT_EQ(limited->held(), Bytes(1000));
  EXPECT_THAT(HostBuffer::Create(limited, 1),
              StatusIs(StatusCode::kResourceExhausted,
                       HasSubstr("cannot allocate 1 bytes from limit(heap): 1000 of 1000 bytes are "
                                 "held; give some back or raise the limit")));
  first = HostBuffer();
  EXPECT_EQ(limited->held(), Bytes(400));
  EXPECT_OK(HostBuffer::Create(limited, 600));
}

TEST(LimitResource, NamesTheLargestHolderThatLiesBelow) {
  const auto tracked = TrackingResource::Create(HeapResource::Create());
  ASSERT_OK_AND_ASSIGN(const auto limited,
                       LimitResource::Create(tracked, {.limit = Bytes(1000), .tracking = tracked}));
  std::vector<HostBuffer> held;
  {
    const MemoryLabel label("small one");
    held.push_back(HostBuffer::Create(limited, 100).value());
  }
  {
    const MemoryLabel label("large one");
    held.push_back(HostBuffer::Create(limited, 300).value());
    held.push_back(HostBuffer::Create(limited, 400).value());
  }
  EXPECT_THAT(limited->Allocate(500),
              StatusIs(StatusCode::kResourceExhausted,
                       HasSubstr("cannot allocate 500 bytes from limit(tracking(heap)): 800 of "
                                 "1000 bytes are held, most by \"large one\" (700 bytes in 2 "
                                 "blocks)")));
}

TEST(LimitResource, NamesTheLargestHolderThatStandsOnIt) {
  const auto limited = Limited(1000);
  auto tracked = TrackingResource::Create(limited);
  limited->SetTracking(tracked);
  {
    const MemoryLabel label("model");
    ASSERT_OK_AND_ASSIGN(const HostBuffer held, HostBuffer::Create(tracked, 900));
    EXPECT_THAT(tracked->Allocate(101),
                StatusIs(StatusCode::kResourceExhausted,
                         HasSubstr("most by \"model\" (900 bytes in 1 block)")));
  }
  tracked.reset();
  EXPECT_THAT(limited->Allocate(1001),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("0 of 1000 bytes are held; give")))
      << "who is gone is not asked";
}

TEST(LimitResource, TheLimitMayChange) {
  const auto limited = Limited(1000);
  ASSERT_OK_AND_ASSIGN(HostBuffer held, HostBuffer::Create(limited, 800));
  ASSERT_OK(limited->SetLimit(Bytes(500)));
  EXPECT_EQ(limited->limit(), Bytes(500));
  EXPECT_THAT(limited->Allocate(1),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("800 of 500 bytes are held")));
  held = HostBuffer();
  EXPECT_OK(HostBuffer::Create(limited, 500));
  EXPECT_THAT(limited->SetLimit(Bytes(0)), StatusIs(StatusCode::kInvalidArgument));
}

TEST(LimitResource, RefusesLimitsThatAreNone) {
  for (const std::int64_t limit : {0, -1}) {
    EXPECT_THAT(LimitResource::Create(HeapResource::Create(), {.limit = Bytes(limit)}),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr(StrCat("heap to ", limit))));
  }
}

TEST(LimitResource, WhatTheResourceBelowRefusesIsNotHeld) {
  const auto limited = Limited(static_cast<std::int64_t>(MemoryResource::kMaxBytes));
  EXPECT_THAT(limited->Allocate(MemoryResource::kMaxBytes),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("from the heap")));
  EXPECT_EQ(limited->held(), Bytes(0));
}

TEST(LimitResource, ThreadsTogetherNeverExceedIt) {
  const auto counted = StatisticsResource::Create(HeapResource::Create());
  const auto limited = LimitResource::Create(counted, {.limit = Bytes(1000)}).value();
  {
    std::vector<std::jthread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&] {
        std::vector<HostBuffer> held;
        for (int j = 0; j < 2000; ++j) {
          auto block = HostBuffer::Create(limited, 100);
          if (block.ok()) held.push_back(*std::move(block));
          if (held.size() == 4) held.clear();
        }
      });
    }
  }
  EXPECT_LE(counted->statistics().peak_bytes, 1000);
  EXPECT_EQ(limited->held(), Bytes(0));
  // Four threads with four blocks each want 1600; all is free at the end.
  ASSERT_OK_AND_ASSIGN(const HostBuffer all, HostBuffer::Create(limited, 1000));
}

}  // namespace
}  // namespace ait

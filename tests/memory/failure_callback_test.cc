// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/failure_callback.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "ait/memory/buffer.h"
#include "ait/memory/heap.h"
#include "ait/memory/limit.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;

std::shared_ptr<LimitResource> Limited(std::int64_t limit) {
  return LimitResource::Create(HeapResource::Create(), {.limit = Bytes(limit)}).value();
}

TEST(FailureCallbackResource, TriesAgainWhenTheCallbackHasMadeRoom) {
  const auto limited = Limited(1000);
  std::vector<HostBuffer> cache;
  for (int i = 0; i < 3; ++i) cache.push_back(HostBuffer::Create(limited, 300).value());
  std::vector<AllocationFailure> failures;
  const auto memory =
      FailureCallbackResource::Create(limited, {.callback = [&](const AllocationFailure& failure) {
                                        failures.push_back(failure);
                                        cache.pop_back();
                                        return true;
                                      }});
  ASSERT_OK_AND_ASSIGN(const HostBuffer held, HostBuffer::Create(memory, 600, 256));
  EXPECT_EQ(cache.size(), 1u) << "no more than was needed";
  ASSERT_EQ(failures.size(), 2u);
  EXPECT_EQ(failures[0].bytes, 600u);
  EXPECT_EQ(failures[0].alignment, 256u);
  EXPECT_EQ(failures[0].attempt, 1);
  EXPECT_THAT(failures[0].status,
              StatusIs(StatusCode::kResourceExhausted, ::testing::HasSubstr("900 of 1000")));
  EXPECT_EQ(failures[1].attempt, 2);
  EXPECT_THAT(Message(failures[1].status), ::testing::HasSubstr("600 of 1000"));
}

TEST(FailureCallbackResource, ReturnsTheErrorWhenTheCallbackGivesUp) {
  int calls = 0;
  const auto memory = FailureCallbackResource::Create(
      Limited(10), {.callback = [&](const AllocationFailure&) { return ++calls < 3; }});
  EXPECT_THAT(memory->Allocate(11),
              StatusIs(StatusCode::kResourceExhausted, ::testing::HasSubstr("limit(heap)")));
  EXPECT_EQ(calls, 3);
}

TEST(FailureCallbackResource, DoesNotTryForEver) {
  int calls = 0;
  const auto memory =
      FailureCallbackResource::Create(Limited(10), {.callback =
                                                        [&](const AllocationFailure&) {
                                                          ++calls;
                                                          return true;
                                                        },
                                                    .max_attempts = 5});
  EXPECT_THAT(memory->Allocate(11), StatusIs(StatusCode::kResourceExhausted));
  EXPECT_EQ(calls, 4) << "not after the last try";
}

TEST(FailureCallbackResource, IsAskedAboutALackOfMemoryAlone) {
  int calls = 0;
  const FailureCallbackOptions options = {.callback = [&](const AllocationFailure&) {
    ++calls;
    return true;
  }};
  EXPECT_THAT(FailureCallbackResource::Create(MemoryHandle(), options)->Allocate(1),
              StatusIs(StatusCode::kFailedPrecondition));
  EXPECT_THAT(FailureCallbackResource::Create(Limited(10), options)->Allocate(1, 3),
              StatusIs(StatusCode::kInvalidArgument));
  EXPECT_EQ(calls, 0);
}

TEST(FailureCallbackResource, MayBeUsedInsideItsOwnCallback) {
  int calls = 0;
  std::shared_ptr<FailureCallbackResource> memory;
  memory = FailureCallbackResource::Create(
      Limited(1000), {.callback = [&](const AllocationFailure&) {
        ++calls;
        EXPECT_OK(HostBuffer::Create(memory, 500)) << "a note about the failure";
        EXPECT_THAT(memory->Allocate(2000), StatusIs(StatusCode::kResourceExhausted));
        return false;
      }});
  EXPECT_THAT(memory->Allocate(2000), StatusIs(StatusCode::kResourceExhausted));
  EXPECT_EQ(calls, 1);
  EXPECT_THAT(memory->Allocate(2000), StatusIs(StatusCode::kResourceExhausted));
  EXPECT_EQ(calls, 2) << "once outside of it, it is asked again";
}

TEST(FailureCallbackResource, TheCallbackOfOneDoesNotSilenceAnother) {
  int inner_calls = 0;
  const auto inner =
      FailureCallbackResource::Create(Limited(10), {.callback = [&](const AllocationFailure&) {
                                        ++inner_calls;
                                        return false;
                                      }});
  const auto outer = FailureCallbackResource::Create(
      Limited(10), {.callback = [&](const AllocationFailure&) {
        std::jthread([&] { EXPECT_FALSE(inner->Allocate(11).ok()); }).join();
        return inner->Allocate(11).ok();
      }});
  EXPECT_FALSE(outer->Allocate(11).ok());
  EXPECT_EQ(inner_calls, 2);
}

TEST(FailureCallbackResource, WithoutACallbackItPassesEverythingOn) {
  const auto memory = FailureCallbackResource::Create(Limited(10), {});
  EXPECT_OK(HostBuffer::Create(memory, 10));
  EXPECT_THAT(memory->Allocate(11), StatusIs(StatusCode::kResourceExhausted));
  EXPECT_EQ(memory->properties().name, "failure callback(limit(heap))");
}

}  // namespace
}  // namespace ait

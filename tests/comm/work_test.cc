// SPDX-License-Identifier: Apache-2.0
#include "ait/comm/work.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "comm/work_internal.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using internal::WorkState;
using ::testing::ElementsAre;
using testing::IsOk;
using testing::StatusIs;

TEST(Work, IsOverWithTheStatusItWasMadeWith) {
  const Work work(InvalidArgumentError("no such root"));
  EXPECT_TRUE(work.done());
  EXPECT_THAT(work.Wait(), StatusIs(StatusCode::kInvalidArgument, "no such root"));
  EXPECT_OK(Work().Wait());
}

TEST(Work, WaitReturnsWhenAnotherThreadEndsItAndSeesWhatThatWrote) {
  auto state = std::make_shared<WorkState>();
  const Work work(state);
  EXPECT_FALSE(work.done());
  int written = 0;
  std::thread transport([&] {
    written = 7;
    EXPECT_TRUE(state->Finish(OkStatus()));
  });
  EXPECT_OK(work.Wait());
  EXPECT_EQ(written, 7);
  transport.join();
}

TEST(Work, WaitWithDeadlineLeavesTheOperationRunning) {
  auto state = std::make_shared<WorkState>();
  const Work work(state);
  EXPECT_THAT(work.Wait(Deadline::After(std::chrono::milliseconds(1))),
              StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_FALSE(work.done());
  state->Finish(OkStatus());
  EXPECT_OK(work.Wait(Deadline::After(std::chrono::milliseconds(1))));
}

TEST(Work, OnlyTheFirstEndCounts) {
  auto state = std::make_shared<WorkState>();
  EXPECT_TRUE(state->Finish(AbortedError("first")));
  EXPECT_FALSE(state->Finish(OkStatus()));
  EXPECT_THAT(Work(state).Wait(), StatusIs(StatusCode::kAborted, "first"));
}

TEST(Work, CallbacksRunOnceAtTheEndOrAtOnceAfterIt) {
  auto state = std::make_shared<WorkState>();
  const Work work(state);
  std::vector<int> calls;
  work.Then([&](const Status& status) {
    EXPECT_THAT(status, StatusIs(StatusCode::kUnavailable));
    calls.push_back(1);
  });
  EXPECT_THAT(calls, ElementsAre());
  state->Finish(UnavailableError("rank 1 died"));
  EXPECT_THAT(calls, ElementsAre(1));
  work.Then([&](const Status&) { calls.push_back(2); });
  EXPECT_THAT(calls, ElementsAre(1, 2));
}

TEST(Work, ACallbackMayUseTheWorkItself) {
  auto state = std::make_shared<WorkState>();
  const Work work(state);
  bool was_done = false;
  work.Then([&](const Status&) { was_done = work.done() && work.Wait().ok(); });
  state->Finish(OkStatus());
  EXPECT_TRUE(was_done);
}

TEST(Work, CancelAsksTheTransportOnceAndOnlyBeforeTheEnd) {
  auto state = std::make_shared<WorkState>();
  int asked = 0;
  state->OnCancel([&] { ++asked; });
  const Work work(state);
  work.Cancel();
  work.Cancel();
  EXPECT_EQ(asked, 1);
  EXPECT_FALSE(work.done()) << "the transport ends it";

  auto over = std::make_shared<WorkState>();
  over->OnCancel([&] { ++asked; });
  over->Finish(OkStatus());
  Work(over).Cancel();
  EXPECT_EQ(asked, 1);
}

TEST(Work, TimesComeInOrder) {
  auto state = std::make_shared<WorkState>();
  const Work work(state);
  EXPECT_NE(work.times().issued, Time{});
  EXPECT_EQ(work.times().started, Time{});
  EXPECT_EQ(work.times().finished, Time{});
  state->MarkStarted();
  const Time started = work.times().started;
  state->MarkStarted();
  state->Finish(OkStatus());
  EXPECT_EQ(work.times().started, started) << "the first start counts";
  EXPECT_LE(work.times().issued, started);
  EXPECT_LE(started, work.times().finished);
}

TEST(WaitAll, WaitsForAllAndReturnsTheFirstErrorInTheOrderGiven) {
  auto late = std::make_shared<WorkState>();
  const std::vector<Work> works = {Work(), Work(late), Work(AbortedError("second"))};
  std::thread transport([&] { late->Finish(UnavailableError("first")); });
  EXPECT_THAT(WaitAll(works), StatusIs(StatusCode::kUnavailable, "first"));
  EXPECT_TRUE(works[1].done());
  transport.join();
  EXPECT_OK(WaitAll(std::vector<Work>{}));
}

}  // namespace
}  // namespace ait

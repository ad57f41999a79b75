// SPDX-License-Identifier: Apache-2.0
#include "comm/hang_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "support/status_matchers.h"

namespace ait {
namespace {

using namespace std::chrono_literals;
using internal::HangWatch;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::StatusIs;

class Lines final : public LogSink {
 public:
  void Write(Severity, std::string_view, std::string_view message) override {
    std::lock_guard lock(mutex_);
    text_ += StrCat(message, "\n");
  }
  std::string text() const {
    std::lock_guard lock(mutex_);
    return text_;
  }
  /// Waits for the words; the test's own time-out is the limit.
  void Await(std::string_view words) const {
    while (text().find(words) == std::string::npos) std::this_thread::sleep_for(5ms);
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

/// The ranks of a world in one process: stores, recorders and watches, without a data plane.
class Ranks {
 public:
  explicit Ranks(int size, std::chrono::milliseconds report_after = 300ms)
      : stores(static_cast<std::size_t>(size)) {
    auto serve = TcpStoreOptions{.size = WorldSize(size), .host = "127.0.0.1"};
    std::vector<std::thread> threads;
    serve.port = FreePort();
    for (int rank = 0; rank < size; ++rank) {
      threads.emplace_back([this, serve, rank]() mutable {
        serve.rank = Rank(rank);
        auto store = TcpStore::Create(serve);
        ASSERT_OK(store.status());
        stores[static_cast<std::size_t>(rank)] = *std::move(store);
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (int rank = 0; rank < size; ++rank) {
      recorders.push_back(std::make_shared<FlightRecorder>(
          FlightRecorderOptions{.rank = Rank(rank), .size = WorldSize(size)}));
      std::vector<Rank> all;
      for (int i = 0; i < size; ++i) all.push_back(Rank(i));
      groups.push_back(recorders.back()->AddGroup("world", all));
      logs.push_back(std::make_unique<Lines>());
      auto watch = HangWatch::Create(stores[static_cast<std::size_t>(rank)], recorders.back(),
                                     report_after, logs.back().get());
      EXPECT_OK(watch.status());
      watches.push_back(*std::move(watch));
    }
  }
  ~Ranks() {
    watches.clear();
    while (!stores.empty()) stores.pop_back();  // rank 0, which serves, last
  }

  std::uint64_t Begin(int rank, std::uint64_t sequence, std::int64_t count = 8) {
    std::vector<float> x(1);
    return groups[static_cast<std::size_t>(rank)]->Begin(
        {.kind = OperationKind::kAllReduce,
         .output = {.data = x.data(), .count = count},
         .sequence = sequence,
         .label = "bucket 7"},
        SystemClock().now());
  }

  std::vector<std::shared_ptr<TcpStore>> stores;
  std::vector<std::shared_ptr<FlightRecorder>> recorders;
  std::vector<std::unique_ptr<FlightGroup>> groups;
  std::vector<std::unique_ptr<Lines>> logs;
  std::vector<std::unique_ptr<HangWatch>> watches;

 private:
  static std::uint16_t FreePort() {
    const auto store = TcpStore::Create({.host = "127.0.0.1"});
    EXPECT_OK(store.status());
    return (*store)->port();
  }
};

TEST(HangWatch, TellsEveryRankThatWaitsWhoIsMissingAndWhereItIs) {
  Ranks ranks(4);
  ranks.recorders[3]->Note(812, "data");
  for (int rank = 0; rank < 3; ++rank) ranks.Begin(rank, 1);
  for (std::size_t rank = 0; rank < 3; ++rank) {
    ranks.logs[rank]->Await("hang report");
    EXPECT_THAT(
        ranks.logs[rank]->text(),
        AllOf(HasSubstr("all-reduce (sum) of 8 float32, sequence 1, bucket 7"),
              HasSubstr("rank 3 (pid "), HasSubstr("is missing"), HasSubstr("step 812, data")));
  }
  EXPECT_EQ(ranks.logs[3]->text(), "");
}

TEST(HangWatch, TheErrorOfTheDeadlineHoldsTheReport) {
  Ranks ranks(2);
  const std::uint64_t number = ranks.Begin(0, 1);
  ranks.logs[0]->Await("hang report");
  const Status status =
      ranks.groups[0]->End(number, DeadlineExceededError("the deadline passed"), {}, {});
  EXPECT_THAT(status, StatusIs(StatusCode::kDeadlineExceeded,
                               AllOf(HasSubstr("the deadline passed; hang report: "),
                                     HasSubstr("is missing"))));
}

TEST(HangWatch, ADeadlineThatIsNearMakesItAskSooner) {
  Ranks ranks(2, 1h);
  Operation operation{.kind = OperationKind::kBarrier, .sequence = 1};
  operation.deadline = Deadline::After(2s);
  ranks.groups[0]->Begin(operation, SystemClock().now());
  ranks.logs[0]->Await("hang report");
}

TEST(HangWatch, SeesThatTheRanksMeanDifferentOperations) {
  Ranks ranks(2);
  ranks.Begin(0, 1, 8);
  ranks.Begin(1, 1, 9);
  ranks.logs[0]->Await("differs in count");
  EXPECT_THAT(ranks.logs[0]->text(), AllOf(HasSubstr("of 8 float32"), HasSubstr("of 9 float32")));
}

TEST(HangWatch, AsksAgainAboutTheNextHang) {
  Ranks ranks(2);
  for (std::uint64_t sequence = 1; sequence <= 6; ++sequence) {  // more than are watched ahead
    const std::uint64_t number = ranks.Begin(static_cast<int>(sequence % 2), sequence);
    ranks.logs[sequence % 2]->Await(StrCat("sequence ", sequence));
    const auto group = sequence % 2;
    EXPECT_OK(ranks.groups[group]->End(number, OkStatus(), {}, {}));
  }
}

TEST(HangWatch, SaysNothingWhereNothingWaitsForLong) {
  Ranks ranks(2, 10s);
  const std::uint64_t number = ranks.Begin(0, 1);
  std::this_thread::sleep_for(400ms);
  EXPECT_OK(ranks.groups[0]->End(number, OkStatus(), {}, {}));
  EXPECT_EQ(ranks.logs[0]->text(), "");
}

TEST(HangWatch, ARecorderOfAnotherRankIsRefused) {
  const auto recorder = std::make_shared<FlightRecorder>();
  EXPECT_THAT(
      internal::WorldRecorder(recorder, Env(), Rank(2), WorldSize(4), nullptr),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("of rank 0 of 1, but this is rank 2 of 4")));
}

}  // namespace
}  // namespace ait

// SPDX-License-Identifier: Apache-2.0
// Leaving a loader at any moment, and the bound of its memory.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "ait/data/loader/data_loader.h"
#include "ait/memory/heap.h"
#include "ait/memory/statistics.h"
#include "data/loader/loader_test_support.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using testing::HashesOf;
using testing::HashOf;
using ::testing::HasSubstr;
using testing::NumberSource;
using testing::ScatteredPlan;
using testing::StatusIs;

// Leaves loaders by break, destruction, cancel and restore at random moments.
TEST(DataLoaderStressTest, EndsAtAnyMoment) {
  const auto plan = std::make_shared<ScatteredPlan>(400, 8, 2, 2);
  std::atomic<int> alive = 0;
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](unsigned n) { return static_cast<int>(random() % n); };
    std::vector<std::shared_ptr<const SampleSource>> sources;
    for (int i = 0; i < 2; ++i) {
      const auto source = std::make_shared<NumberSource>(200, i);
      const int delay = below(3) * 50;
      source->on_read = [delay](std::int64_t id) {
        if (id % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds(delay));
        return OkStatus();
      };
      sources.push_back(source);
    }
    const Transform transform = [&](Sample&, SampleRandom& numbers) -> Status {
      ++alive;
      if (numbers.Chance(0.1)) std::this_thread::yield();
      --alive;
      return OkStatus();
    };
    auto loader = DataLoader::Create(
        plan, sources,
        {.transform = below(2) == 0 ? Transform() : transform,
         .threads = below(6),
         .budget = Bytes(1 + below(4) * 3000),
         .max_ahead = 1 + below(8),
         .order = below(3) == 0 ? DeliveryOrder::kAsReady : DeliveryOrder::kPlanned});
    ASSERT_OK(loader);
    const DatasetState start = loader->state();
    std::thread canceller;
    if (below(3) == 0) {
      const int delay = below(2000);
      canceller = std::thread([&, delay] {
        std::this_thread::sleep_for(std::chrono::microseconds(delay));
        loader->Cancel();
      });
    }
    for (int steps = below(60); steps > 0; --steps) {
      if (loader->Next() == nullptr) break;
      if (below(20) == 0) {
        ASSERT_OK(loader->Restore(below(2) == 0 ? start : loader->state()));
      }
      if (below(20) == 0) static_cast<void>(loader->statistics());
    }
    if (canceller.joinable()) canceller.join();
  }
  EXPECT_EQ(alive, 0);
}

TEST(DataLoaderStressTest, CancelEndsACallThatWaits) {
  const auto source = std::make_shared<NumberSource>(16);
  std::atomic<bool> go_on = false;
  source->on_read = [&](std::int64_t) {
    while (!go_on) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return OkStatus();
  };
  auto loader = DataLoader::Create(std::make_shared<ScatteredPlan>(16, 8), {source});
  ASSERT_OK(loader);
  std::thread canceller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    loader->Cancel();
  });
  EXPECT_EQ(loader->Next(), nullptr);
  EXPECT_THAT(loader->status(), StatusIs(StatusCode::kCancelled));
  canceller.join();
  go_on = true;
}

TEST(DataLoaderStressTest, SeveralLoadersShareEverything) {
  const auto plan = std::make_shared<ScatteredPlan>(300, 10);
  const auto source = std::make_shared<NumberSource>(300);
  const MemoryHandle memory = HeapResource::Create();
  std::vector<std::vector<std::uint64_t>> hashes(4);
  std::vector<std::thread> consumers;
  for (std::size_t i = 0; i < hashes.size(); ++i) {
    consumers.emplace_back([&, i] {
      auto loader = DataLoader::Create(plan, {source}, {.threads = 2, .memory = memory});
      if (loader.ok()) hashes[i] = HashesOf(*loader);
    });
  }
  for (std::thread& consumer : consumers) consumer.join();
  EXPECT_EQ(hashes[0].size(), 30U);
  for (const auto& one : hashes) EXPECT_EQ(one, hashes[0]);
}

/// Samples of very different sizes, in memory that is counted. They say a fourth of what they are.
class CountedSource final : public NumberSource {
 public:
  CountedSource(std::int64_t count, MemoryHandle memory)
      : NumberSource(count), memory_(std::move(memory)) {}
  static std::int64_t Size(std::int64_t id) { return 1000 + id * 7919 % 40'000; }
  std::int64_t size_bytes(std::int64_t id) const override { return Size(id) / 4; }

 protected:
  Status ReadOne(SampleRead& read) const override {
    auto buffer = HostBuffer::Create(memory_, static_cast<std::size_t>(Size(read.id)));
    if (!buffer.ok()) return buffer.status();
    const auto owner = std::make_shared<HostBuffer>(*std::move(buffer));
    owner->Zero();
    read.sample.fields.clear();
    read.sample.fields.push_back({.name = "bytes", .value = ByteView(owner->bytes(), owner)});
    return OkStatus();
  }

 private:
  MemoryHandle memory_;
};

// A decoder that makes three times as much of a sample as it was, in counted memory too.
Transform Expand(const MemoryHandle& memory) {
  return [memory](Sample& sample, SampleRandom&) -> Status {
    const std::size_t size = sample.fields[0].value.size_bytes() * 3;
    auto buffer = HostBuffer::Create(memory, size);
    if (!buffer.ok()) return buffer.status();
    const auto owner = std::make_shared<HostBuffer>(*std::move(buffer));
    owner->Zero();
    sample.fields.clear();
    sample.fields.push_back({.name = "x",
                             .value = ByteView(owner->bytes(), owner),
                             .kind = FieldKind::kArray,
                             .dtype = DType::kUInt8,
                             .shape = {static_cast<std::int64_t>(size)}});
    return OkStatus();
  };
}

TEST(DataLoaderStressTest, MemoryStaysWithinTheBudget) {
  // Batches take about 2 MB when they are padded and collated.
  for (const std::int64_t budget : {8'000'000, 16'000'000}) {
    for (const bool slow_consumer : {false, true}) {
      const auto counted = StatisticsResource::Create(HeapResource::Create());
      auto loader = DataLoader::Create(std::make_shared<ScatteredPlan>(3000, 12),
                                       {std::make_shared<CountedSource>(3000, counted)},
                                       {.transform = Expand(counted),
                                        .collate = Stack({.padding = {{.field = "x"}}}),
                                        .threads = 4,
                                        .budget = Bytes(budget),
                                        .memory = counted});
      ASSERT_OK(loader);
      std::int64_t batches = 0;
      while (loader->Next() != nullptr) {
        ++batches;
        if (slow_consumer && batches % 8 == 0) {
          std::this_thread::sleep_for(std::chrono::milliseconds(2));
        }
      }
      ASSERT_OK(loader->status());
      EXPECT_EQ(batches, 250);
      EXPECT_LE(counted->statistics().peak_bytes, budget + budget / 20);
      // It is used, too.
      EXPECT_GE(counted->statistics().peak_bytes, budget / 2);
      const LoaderStatistics statistics = loader->statistics();
      EXPECT_LE(statistics.peak_bytes, budget + budget / 20) << ToString(statistics);
    }
  }
}

TEST(DataLoaderStressTest, ABatchAboveTheBudgetComesAlone) {
  const auto counted = StatisticsResource::Create(HeapResource::Create());
  auto loader = DataLoader::Create(std::make_shared<ScatteredPlan>(120, 12),
                                   {std::make_shared<CountedSource>(120, counted)},
                                   {.transform = Expand(counted),
                                    .collate = Stack({.padding = {{.field = "x"}}}),
                                    .threads = 4,
                                    .budget = Bytes(1000),
                                    .memory = counted});
  ASSERT_OK(loader);
  std::int64_t largest = 0;
  std::int64_t batches = 0;
  while (const DataBatch* batch = loader->Next()) {
    largest = std::max(largest, static_cast<std::int64_t>(batch->Find("x")->size_bytes()));
    ++batches;
  }
  EXPECT_EQ(batches, 10);
  // One batch: decoded samples and their copy.
  EXPECT_LE(counted->statistics().peak_bytes, 2 * largest);
  EXPECT_EQ(counted->statistics().current_bytes, 0);
}

TEST(DataLoaderStressTest, BuffersAreUsedAgain) {
  const auto counted = StatisticsResource::Create(HeapResource::Create());
  {
    auto loader = DataLoader::Create(
        std::make_shared<ScatteredPlan>(4000, 10), {std::make_shared<NumberSource>(4000, 0, 1000)},
        {.threads = 2, .budget = MiB(8), .max_ahead = 4, .memory = counted});
    ASSERT_OK(loader);
    while (loader->Next() != nullptr) {
    }
    EXPECT_EQ(loader->statistics().batches, 400);
    // Those ahead, one with the consumer, and the ones in work.
    EXPECT_LE(counted->statistics().total_count, 8);
  }
  EXPECT_EQ(counted->statistics().current_bytes, 0);
}

class Lines final : public LogSink {
 public:
  void Write(Severity, std::string_view, std::string_view message) override {
    const std::lock_guard lock(mutex_);
    text_ += std::string(message) + "\n";
  }
  std::string text() const {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

TEST(DataLoaderStressTest, TheWatchdogNamesWhatIsSlow) {
  for (const bool in_transform : {false, true}) {
    Lines log;
    std::atomic<bool> go_on = false;
    const auto wait = [&](std::int64_t id) {
      while (id == 5 && !go_on) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      return OkStatus();
    };
    const auto source = std::make_shared<NumberSource>(64);
    if (!in_transform) source->on_read = wait;
    Transform transform;
    if (in_transform) transform = [&](Sample& sample, SampleRandom&) { return wait(sample.id); };
    // Sample 5 lies alone in its batch.
    auto loader = DataLoader::Create(std::make_shared<ScatteredPlan>(64, 1), {source},
                                     {.transform = transform,
                                      .threads = 2,
                                      .slow_batch = std::chrono::milliseconds(20),
                                      .log = &log});
    ASSERT_OK(loader);
    std::thread watch([&] {
      while (log.text().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      go_on = true;
    });
    while (loader->Next() != nullptr) {
    }
    watch.join();
    EXPECT_OK(loader->status());
    EXPECT_THAT(log.text(), HasSubstr("waits for data"));
    EXPECT_THAT(log.text(), HasSubstr(in_transform ? "sample 5 is being transformed"
                                                   : "of numbers0 are being read, the first is 5"));
    EXPECT_THAT(log.text(), HasSubstr("numbers0/shard0"));
    EXPECT_GE(loader->statistics().slow_batches, 1);
  }
}

TEST(DataLoaderStressTest, AForkedChildGetsAnErrorAndMayDestroyIt) {
  auto loader = DataLoader::Create(std::make_shared<ScatteredPlan>(400, 8),
                                   {std::make_shared<NumberSource>(400)}, {.threads = 3});
  ASSERT_OK(loader);
  ASSERT_NE(loader->Next(), nullptr);
  // Others hold the mutex at the moment of the fork, or nearly.
  std::atomic<bool> is_over = false;
  std::vector<std::thread> askers;
  for (int i = 0; i < 2; ++i) {
    askers.emplace_back([&] {
      while (!is_over) static_cast<void>(loader->statistics());
    });
  }
  for (int i = 0; i < 20; ++i) {
    const pid_t asking = ::fork();
    ASSERT_GE(asking, 0);
    if (asking == 0) {
      ::alarm(20);
      ::_exit(loader->statistics().batches == 0 ? 0 : 1);
    }
    int asked = -1;
    ASSERT_EQ(::waitpid(asking, &asked, 0), asking);
    EXPECT_TRUE(WIFEXITED(asked) && WEXITSTATUS(asked) == 0) << asked;
  }
  is_over = true;
  for (std::thread& asker : askers) asker.join();
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    ::alarm(20);
    bool good = loader->Next() == nullptr;
    good = good && loader->status().code() == StatusCode::kFailedPrecondition;
    good = good && loader->delivered_ahead().empty() && loader->statistics().batches == 0;
    good = good && loader->TakeWait().elapsed == Duration::zero();
    loader->Cancel();
    {
      const DataLoader gone = *std::move(loader);
    }
    ::_exit(good ? 0 : 1);
  }
  int result = -1;
  ASSERT_EQ(::waitpid(child, &result, 0), child);
  EXPECT_TRUE(WIFEXITED(result) && WEXITSTATUS(result) == 0) << result;
  EXPECT_NE(loader->Next(), nullptr);
}

// A plan may take long and call what it wants, and keeps nobody but the next batch waiting.
class AskingPlan final : public BatchPlan {
 public:
  std::uint64_t digest() const override { return plan_.digest(); }
  std::int64_t epoch_size(std::int64_t epoch) const override { return plan_.epoch_size(epoch); }
  Status NextBatch(const DatasetState& from, const Shard& shard,
                   PlannedBatch& batch) const override {
    if (on_plan) on_plan(from);
    return plan_.NextBatch(from, shard, batch);
  }

  std::function<void(const DatasetState&)> on_plan;

 private:
  ScatteredPlan plan_{400, 8};
};

TEST(DataLoaderStressTest, ThePlanIsAskedWithoutALock) {
  for (const int threads : {0, 1, 3}) {
    const auto plan = std::make_shared<AskingPlan>();
    auto loader =
        DataLoader::Create(plan, {std::make_shared<NumberSource>(400)}, {.threads = threads});
    ASSERT_OK(loader);
    std::atomic<bool> is_cancelled = false;
    std::thread canceller;
    plan->on_plan = [&](const DatasetState& from) {
      EXPECT_LE(loader->statistics().batches, 100);
      if (from.delivered != 80 || canceller.joinable()) return;
      canceller = std::thread([&] {
        loader->Cancel();
        is_cancelled = true;
      });
      while (!is_cancelled) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    };
    ::alarm(60);  // instead of waiting for ever
    const DatasetState start = loader->state();
    while (loader->Next() != nullptr) {
    }
    EXPECT_THAT(loader->status(), StatusIs(StatusCode::kCancelled));
    ASSERT_OK(loader->Restore(start));
    EXPECT_EQ(HashesOf(*loader).size(), 50U);
    EXPECT_OK(loader->status());
    ::alarm(0);
    canceller.join();
  }
}

// How far it reads ahead follows from whether the consumer waits.
TEST(DataLoaderStressTest, DepthGrowsWhileTheConsumerWaitsAndShrinksAfter) {
  const auto source = std::make_shared<NumberSource>(400'000);
  std::atomic<bool> slow = true;
  source->on_read = [&](std::int64_t) {
    if (slow) std::this_thread::sleep_for(std::chrono::microseconds(200));
    return OkStatus();
  };
  auto loader = DataLoader::Create(std::make_shared<ScatteredPlan>(400'000, 2), {source},
                                   {.threads = 1, .max_ahead = 32});
  ASSERT_OK(loader);
  const int before = loader->statistics().depth;
  for (int i = 0; i < 60; ++i) ASSERT_NE(loader->Next(), nullptr);
  const int grown = loader->statistics().depth;
  EXPECT_GT(grown, before);
  EXPECT_LE(grown, 32);
  slow = false;
  int shrunk = grown;
  for (int i = 0; i < 30'000 && shrunk >= grown; ++i) {
    std::this_thread::sleep_for(std::chrono::microseconds(300));
    ASSERT_NE(loader->Next(), nullptr);
    shrunk = loader->statistics().depth;
  }
  EXPECT_LT(shrunk, grown);
}

}  // namespace
}  // namespace ait

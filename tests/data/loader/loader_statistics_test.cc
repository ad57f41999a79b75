// SPDX-License-Identifier: Apache-2.0
#include "ait/data/loader/loader_statistics.h"

#include <gtest/gtest.h>

#include "data/loader/loader_test_support.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::testing::HasSubstr;
using testing::NumberSource;
using testing::ScatteredPlan;

TEST(LoaderStatisticsTest, TheShareOfWaitingGoesIntoTheReportOfAStep) {
  StepMetrics metrics{.step = 1};
  AddTo(metrics, {.wait = std::chrono::milliseconds(5), .elapsed = std::chrono::milliseconds(20)});
  ASSERT_EQ(metrics.counters.size(), 2U);
  EXPECT_EQ(metrics.counters[0], (std::pair<std::string, std::int64_t>{"data_wait_us", 5000}));
  EXPECT_EQ(metrics.counters[1], (std::pair<std::string, std::int64_t>{"data_wait_permille", 250}));
  EXPECT_EQ(DataWait{}.share(), 0);
}

TEST(LoaderStatisticsTest, CountsWhatWasDelivered) {
  auto loader = DataLoader::Create(
      std::make_shared<ScatteredPlan>(64, 8), {std::make_shared<NumberSource>(64)},
      {.cache_counts = [] { return CacheCounts{.hits = 3, .misses = 1}; }});
  ASSERT_OK(loader);
  while (loader->Next() != nullptr) {
  }
  const LoaderStatistics statistics = loader->statistics();
  EXPECT_EQ(statistics.batches, 8);
  EXPECT_EQ(statistics.samples, 64);
  // 32 bytes of numbers, and "n0" to "n63".
  EXPECT_EQ(statistics.bytes, 64 * 32 + 10 * 2 + 54 * 3);
  EXPECT_EQ(statistics.cache.hits, 3);
  EXPECT_EQ(statistics.bad_samples, 0);
  EXPECT_GE(statistics.waits, 1);
  EXPECT_GT(statistics.read.count(), 0);
  EXPECT_THAT(statistics.longest_read_what, HasSubstr("numbers0"));
  EXPECT_THAT(ToString(statistics), HasSubstr("8 batches, 64 samples"));
  EXPECT_THAT(ToString(statistics), HasSubstr("3 hits"));
}

TEST(LoaderStatisticsTest, TakesTheWaitSinceTheCallBefore) {
  const auto source = std::make_shared<NumberSource>(16);
  source->on_read = [](std::int64_t) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return OkStatus();
  };
  auto loader =
      DataLoader::Create(std::make_shared<ScatteredPlan>(16, 8), {source}, {.threads = 1});
  ASSERT_OK(loader);
  ASSERT_NE(loader->Next(), nullptr);
  const DataWait first = loader->TakeWait();
  EXPECT_GT(first.wait, std::chrono::milliseconds(20));
  EXPECT_GT(first.share(), 0);
  EXPECT_LE(first.share(), 1);
  EXPECT_EQ(loader->TakeWait().wait, Duration::zero());
}

}  // namespace
}  // namespace ait

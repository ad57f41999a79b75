// SPDX-License-Identifier: Apache-2.0
#include "ait/observe/memory_growth.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>

#include "ait/memory/buffer.h"
#include "ait/memory/heap.h"
#include "observe/growth_series_internal.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::testing::HasSubstr;

constexpr double kMiB = 1 << 20;

/// Live bytes that are a function of the step.
MemoryGrowth Watched(int steps, const std::function<double(int)>& live,
                     const MemoryGrowthOptions& options = {}) {
  MemoryGrowth growth(options);
  for (int step = 1; step <= steps; ++step)
    growth.Add({.step = step, .live = Bytes(std::llround(live(step)))});
  return growth;
}

bool Grows(int steps, const std::function<double(int)>& live) {
  return Watched(steps, live).Find().found();
}

/// Noise that is the same on every machine.
std::vector<double> Noise(int count, double sigma, unsigned seed) {
  std::mt19937 random(seed);
  std::vector<double> noise;
  for (int i = 0; i < count; ++i) {
    double sum = -6;  // twelve uniform numbers make a normal one, nearly
    for (int k = 0; k < 12; ++k) sum += static_cast<double>(random()) / 4294967296.0;
    noise.push_back(sum * sigma);
  }
  return noise;
}

TEST(MemoryGrowth, TheSlopeIsTheMedianOverAllPairs) {
  using internal::GrowthPoint;
  const std::vector<GrowthPoint> line = {{1, 5}, {2, 7}, {4, 11}, {9, 21}};
  EXPECT_EQ(internal::TheilSenSlope(line), 2);
  std::vector<GrowthPoint> with_outlier;
  for (int step = 0; step < 20; ++step) with_outlier.push_back({step, 3.0 * step});
  with_outlier[7].value = 1e9;
  EXPECT_NEAR(internal::TheilSenSlope(with_outlier), 3, 1e-9);
}

TEST(MemoryGrowth, ALeakIsFoundWithItsPaceAndItsBeginning) {
  const auto growth = Watched(
      120, [](int step) { return 500 * kMiB + (step > 40 ? (step - 40) * 1.25 * kMiB : 0); });
  const MemoryGrowthReport report = growth.Find();
  ASSERT_TRUE(report.live.has_value());
  EXPECT_NEAR(report.live->bytes_per_step, 1.25 * kMiB, 0.01 * kMiB);
  EXPECT_NEAR(static_cast<double>(report.live->since_step), 40, 3);
  EXPECT_THAT(report.Describe(), HasSubstr("live bytes grow by 1.2 MiB a step since step "));
  EXPECT_EQ(report.StepsUntil(MiB(125)), 100);
}

TEST(MemoryGrowth, ALeakUnderNoiseIsFound) {
  const auto noise = Noise(400, 8 * kMiB, 7);
  const MemoryGrowthReport report =
      Watched(200, [&](int step) {
        return 4096 * kMiB + step * kMiB + noise[static_cast<std::size_t>(step)];
      }).Find();
  ASSERT_TRUE(report.live.has_value());
  EXPECT_NEAR(report.live->bytes_per_step, kMiB, 0.3 * kMiB);
}

TEST(MemoryGrowth, ASlowLeakIsFoundOverTheWholeRun) {
  // 20 KiB a step are 1.2 MiB in a window, below the noise of 2 MiB in it; 39 MiB in all.
  const auto noise = Noise(2001, 2 * kMiB, 3);
  const MemoryGrowthReport report =
      Watched(2000, [&](int step) {
        return 900 * kMiB + step * 20 * 1024.0 + noise[static_cast<std::size_t>(step)];
      }).Find();
  ASSERT_TRUE(report.live.has_value());
  EXPECT_NEAR(report.live->bytes_per_step, 20 * 1024, 3 * 1024);
}

TEST(MemoryGrowth, FlatSeriesRaiseNoAlarmHoweverNoisy) {
  EXPECT_FALSE(Grows(300, [](int) { return 100 * kMiB; }));
  int alarms = 0;
  for (unsigned seed = 1; seed <= 20; ++seed) {
    const auto noise = Noise(1001, 50 * kMiB, seed);
    MemoryGrowth growth;
    for (int step = 1; step <= 1000; ++step) {
      growth.Add(
          {.step = step,
           .live = Bytes(std::llround(2048 * kMiB + noise[static_cast<std::size_t>(step)]))});
      if (step % 10 == 0) alarms += growth.Find().found();
    }
  }
  EXPECT_EQ(alarms, 0) << "of 2000 looks";
}

TEST(MemoryGrowth, WhatLevelsOffOrJumpsOrSwingsIsNoGrowth) {
  // At every moment of the run, not only at its end.
  const auto ever = [](int steps, const std::function<double(int)>& live) {
    MemoryGrowth growth;
    for (int step = 1; step <= steps; ++step) {
      growth.Add({.step = step, .live = Bytes(std::llround(live(step)))});
      if (growth.Find().found()) return step;
    }
    return 0;
  };
  EXPECT_EQ(ever(400, [](int step) { return (step < 200 ? 100 : 900) * kMiB; }), 0) << "one jump";
  EXPECT_EQ(ever(400, [](int step) { return (1 - std::exp(-step / 15.0)) * 900 * kMiB; }), 0)
      << "a cache fills up";
  EXPECT_EQ(ever(400, [](int step) { return 100 * kMiB + step % 10 * 30 * kMiB; }), 0) << "saw";
  EXPECT_EQ(ever(400, [](int step) { return (2000 - step) * kMiB; }), 0) << "it shrinks";
  EXPECT_EQ(ever(400, [](int step) { return 100 * kMiB + step * 100.0; }), 0) << "too little";
}

TEST(MemoryGrowth, WarmUpIsNotLookedAt) {
  MemoryGrowth growth({.warm_up_steps = 100});
  for (int step = 1; step <= 200; ++step)
    growth.Add({.step = step, .live = MiB(step <= 100 ? step : 100)});
  EXPECT_FALSE(growth.Find().found());
}

TEST(MemoryGrowth, AfterTheLeakIsMendedTheAlarmEnds) {
  const auto live = [](int step) { return (step < 100 ? step : 100) * kMiB; };
  EXPECT_TRUE(Grows(100, live));
  EXPECT_FALSE(Grows(400, live));
}

TEST(MemoryGrowth, ResidentMemoryThatGrowsAloneIsHeldByAllocators) {
  MemoryGrowth growth;
  MemoryGrowth blind;
  for (int step = 1; step <= 100; ++step) {
    growth.Add({.step = step, .resident = MiB(500 + 2 * step), .live = MiB(300)});
    blind.Add({.step = step, .resident = MiB(500 + 2 * step)});
  }
  const MemoryGrowthReport report = growth.Find();
  EXPECT_FALSE(report.live.has_value());
  ASSERT_TRUE(report.resident.has_value());
  EXPECT_THAT(report.Describe(), HasSubstr("resident memory grows by 2.0 MiB a step"));
  EXPECT_THAT(report.Describe(), HasSubstr("while live bytes do not"));
  EXPECT_THAT(blind.Find().Describe(), HasSubstr("live bytes are not known"));
}

TEST(MemoryGrowth, TheLabelThatGrowsIsNamedAndTheOthersAreNot) {
  MemoryGrowth growth;
  for (int step = 1; step <= 400; ++step) {
    growth.Add({.step = step, .live = MiB(700 + step)});
    if (step % 8 != 0) continue;
    std::vector<MemoryHolder> holders = {
        {.label = "weights", .bytes = MiB(600).value(), .count = 9},
        {.label = "cache", .bytes = MiB(step).value(), .count = step}};
    if (step % 16 == 0) holders.push_back({.label = "batch", .bytes = MiB(90).value(), .count = 1});
    growth.AddHolders(step, holders);
  }
  const MemoryGrowthReport report = growth.Find();
  ASSERT_EQ(report.labels.size(), 1u);
  EXPECT_EQ(report.labels[0].what, "cache");
  EXPECT_NEAR(report.labels[0].bytes_per_step, kMiB, 1);
  EXPECT_THAT(report.Describe(), HasSubstr("label 'cache' grows by 1.0 MiB a step"));
}

TEST(MemoryGrowth, ARealLeakIsFoundAndNamed) {
  const auto tracked = TrackingResource::Create(HeapResource::Create());
  std::vector<HostBuffer> kept;
  MemoryGrowth growth({.warm_up_steps = 5});
  for (int step = 1; step <= 60; ++step) {
    {
      const MemoryLabel label("activations");
      ASSERT_OK_AND_ASSIGN(const HostBuffer gone, HostBuffer::Create(tracked, 500'000));
    }
    const MemoryLabel label("history");
    ASSERT_OK_AND_ASSIGN(HostBuffer stays, HostBuffer::Create(tracked, 40'000));
    kept.push_back(std::move(stays));
    std::int64_t live = 0;
    for (const MemoryHolder& holder : tracked->Holders()) live += holder.bytes;
    growth.Add({.step = step, .live = Bytes(live)});
    growth.AddHolders(step, tracked->Holders());
  }
  const MemoryGrowthReport report = growth.Find();
  ASSERT_TRUE(report.live.has_value());
  EXPECT_NEAR(report.live->bytes_per_step, 40'000, 1);
  ASSERT_EQ(report.labels.size(), 1u);
  EXPECT_EQ(report.labels[0].what, "history");
}

TEST(MemoryGrowth, StepsThatDoNotRiseAreIgnored) {
  MemoryGrowth growth({.warm_up_steps = 0});
  for (int step = 1; step <= 100; ++step) growth.Add({.step = 5, .live = MiB(step)});
  EXPECT_FALSE(growth.Find().found());
  EXPECT_EQ(growth.Find().Describe(), "");
  EXPECT_FALSE(growth.Find().StepsUntil(MiB(1)).has_value());
}

}  // namespace
}  // namespace ait

// SPDX-License-Identifier: Apache-2.0
#include "ait/memory/bandwidth.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "ait/memory/buffer.h"
#include "ait/memory/heap.h"
#include "ait/memory/statistics.h"
#include "ait/topology/binding.h"
#include "memory/bandwidth_kernels.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using internal::BandwidthKernels;
using ::testing::HasSubstr;

bool IsAll(std::span<const float> values, float expected) {
  return std::ranges::all_of(values, [=](float value) { return value == expected; });
}

std::vector<SimdLevel> Levels() {
  std::vector<SimdLevel> levels;
  for (const SimdLevel level : {SimdLevel::kBaseline, SimdLevel::kAvx2, SimdLevel::kAvx512}) {
    if (level <= BestSimdLevel()) levels.push_back(level);
  }
  return levels;
}

TEST(Bandwidth, KernelsOfEveryLevelComputeWhatTheySay) {
  for (const std::int64_t steps : {0, 1, 2, 7}) {
    const std::int64_t count = steps * BandwidthKernels::kStep;
    const std::size_t bytes = static_cast<std::size_t>(count) * sizeof(float);
    const MemoryHandle heap = HeapResource::Create();
    std::vector<HostBuffer> arrays;
    for (int i = 0; i < 3; ++i) arrays.push_back(HostBuffer::Create(heap, bytes).value());
    const std::span<float> a = arrays[0].As<float>(), b = arrays[1].As<float>(),
                           c = arrays[2].As<float>();
    float sum = 0;
    for (std::size_t i = 0; i < b.size(); ++i) {
      b[i] = static_cast<float>(i % 13) - 4;
      c[i] = static_cast<float>(i % 7);
      sum += b[i];
    }
    for (const SimdLevel level : Levels()) {
      const BandwidthKernels& kernels = internal::BandwidthKernelsFor(level);
      EXPECT_EQ(kernels.read(b.data(), count), sum) << Name(level);
      std::ranges::fill(a, -1.0f);
      kernels.copy(a.data(), b.data(), count);
      EXPECT_TRUE(std::ranges::equal(a, b)) << Name(level);
      kernels.triad(a.data(), b.data(), c.data(), 3, count);
      for (std::size_t i = 0; i < a.size(); ++i) ASSERT_EQ(a[i], b[i] + 3 * c[i]) << Name(level);
    }
  }
}

TEST(Bandwidth, MeasuresEachKernelOnSeveralThreadsAndLeavesItsResult) {
  const CpuSet here = ThisThreadBinding().value();
  for (const auto& threads : {std::vector<CpuSet>{{}}, std::vector<CpuSet>{{here.front()}},
                              std::vector<CpuSet>{{}, here, {}}}) {
    for (const SimdLevel level : Levels()) {
      ASSERT_OK_AND_ASSIGN(auto probe,
                           BandwidthProbe::Create({.array_bytes = Bytes((1 << 20) + 12'345),
                                                   .threads = threads,
                                                   .repetitions = 3,
                                                   .max_level = level}));
      EXPECT_GE(probe->array(0).size_bytes(), std::size_t{1} << 20);
      EXPECT_TRUE(IsAll(probe->array(0), 0.0f)) << "touched";
      for (const BandwidthKernel kernel :
           {BandwidthKernel::kRead, BandwidthKernel::kCopy, BandwidthKernel::kTriad}) {
        const BandwidthResult result = probe->Measure(kernel);
        EXPECT_GT(result.median, 0);
        EXPECT_GE(result.best, result.median);
        const float expected = kernel == BandwidthKernel::kTriad  ? 7
                               : kernel == BandwidthKernel::kCopy ? 1
                                                                  : 0;
        EXPECT_TRUE(IsAll(probe->array(0), expected)) << Name(kernel);
      }
      EXPECT_TRUE(IsAll(probe->array(1), 1.0f));
      EXPECT_TRUE(IsAll(probe->array(2), 2.0f));
    }
  }
}

TEST(Bandwidth, MeasuresTheMemoryThatItIsGiven) {
  const auto counted = StatisticsResource::Create(HeapResource::Create());
  {
    ASSERT_OK_AND_ASSIGN(auto probe,
                         BandwidthProbe::Create({.memory = counted, .array_bytes = MiB(1)}));
    EXPECT_EQ(counted->statistics().current_bytes, 3 << 20);
  }
  EXPECT_GT(MeasureLatency({.memory = counted, .bytes = MiB(1), .repetitions = 1}).value(), 0);
  EXPECT_EQ(counted->statistics().total_bytes, 4 << 20);
  EXPECT_EQ(counted->statistics().current_bytes, 0) << "given back";
}

TEST(Bandwidth, RefusesWhatCannotBeMeasured) {
  EXPECT_THAT(BandwidthProbe::Create({.threads = {}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("no thread")));
  EXPECT_THAT(BandwidthProbe::Create({.array_bytes = KiB(4), .threads = {{}, {}}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("4096 bytes are too small for 2")));
  EXPECT_THAT(BandwidthProbe::Create({.array_bytes = Bytes(-1)}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("-1 bytes")));
  EXPECT_THAT(BandwidthProbe::Create({.repetitions = 0}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("repetitions")));
  EXPECT_THAT(BandwidthProbe::Create({.array_bytes = MiB(1), .threads = {{}, {9999}}}),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("9999")));
  EXPECT_THAT(BandwidthProbe::Create({.array_bytes = GiB(200'000)}),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("")));
  EXPECT_THAT(MeasureLatency({.bytes = Bytes(64)}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("4 KiB")));
  EXPECT_THAT(MeasureLatency({.bytes = MiB(1), .repetitions = 0}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("repetitions")));
  EXPECT_THAT(MeasureLatency({.bytes = MiB(1), .cpus = {9999}}),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("9999")));
}

TEST(Bandwidth, TheLatencyLeavesTheBindingAsItWas) {
  const CpuSet before = ThisThreadBinding().value();
  EXPECT_GT(MeasureLatency({.bytes = KiB(4), .cpus = {before.front()}}).value(), 0);
  EXPECT_EQ(ThisThreadBinding().value(), before);
}

TEST(Bandwidth, HasNames) {
  EXPECT_EQ(Name(BandwidthKernel::kRead), "read");
  EXPECT_EQ(Name(BandwidthKernel::kCopy), "copy");
  EXPECT_EQ(Name(BandwidthKernel::kTriad), "triad");
}

}  // namespace
}  // namespace ait

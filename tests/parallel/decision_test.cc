// SPDX-License-Identifier: Apache-2.0
// The one small reduction of a step: norms of any kind from the owners of slices.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <thread>

#include "ait/base/float16.h"
#include "ait/comm/thread_group.h"
#include "parallel/decision_internal.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::internal::DecisionLine;
using ::ait::internal::MakeDecisionLine;
using ::ait::internal::MakeNormPlan;
using ::ait::internal::OwnedNorms;
using ::ait::internal::OwnedSquares;
using ::ait::internal::Summarize;
using ::ait::testing::StatusIs;
using ::testing::HasSubstr;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

FlatLayout LayoutOf(const std::vector<std::pair<std::string, std::vector<std::int64_t>>>& shapes,
                    int ranks, Bytes bucket = KiB(4)) {
  std::vector<ParameterInfo> infos;
  for (const auto& [name, sizes] : shapes) {
    ParameterInfo info{.name = name, .sizes = sizes};
    std::int64_t stride = 1;
    for (auto size = sizes.rbegin(); size != sizes.rend(); ++size) {
      info.strides.insert(info.strides.begin(), stride);
      stride *= *size;
    }
    infos.push_back(info);
  }
  return FlatLayout::Create(
             infos, {.world_size = WorldSize(ranks), .first_bucket = bucket, .bucket_cap = bucket})
      .value();
}

/// Gradients by name, each a function of its name alone.
std::vector<float> GradientOf(const std::string& name, std::int64_t count) {
  std::mt19937 random(static_cast<unsigned>(std::hash<std::string>()(name)));
  std::normal_distribution<float> normal(0, 0.1f);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(random);
  return values;
}

/// The flat gradient buffer of a layout with one group.
std::vector<float> FlatGradients(const FlatLayout& layout) {
  std::vector<float> flat(static_cast<std::size_t>(layout.groups()[0].count));
  for (const FlatSlot& slot : layout.groups()[0].slots) {
    const auto& name = layout.parameters()[static_cast<std::size_t>(slot.parameter)].name;
    std::ranges::copy(GradientOf(name, slot.count), flat.begin() + slot.offset);
  }
  return flat;
}

/// The line of one rank.
template <typename T>
DecisionLine LineOf(const FlatLayout& layout, std::vector<T> gradients, Rank rank,
                    const StepInput& input, const ParameterGroups& groups = {},
                    DType dtype = DType::kFloat32) {
  const Buffer flat{gradients.data(), static_cast<std::int64_t>(gradients.size()), dtype};
  const auto plan = MakeNormPlan(layout, input.norm, groups);
  OwnedSquares squares;
  for (int b = 0; b < static_cast<int>(layout.buckets().size()); ++b)
    squares.Add(layout, b, flat, rank, {});
  if (!plan) return MakeDecisionLine(input, squares);
  OwnedNorms norms(*plan);
  for (int b = 0; b < static_cast<int>(layout.buckets().size()); ++b) {
    const ElementRange owned = layout.buckets()[static_cast<std::size_t>(b)].slice(rank);
    norms.AddSlice(layout, b, flat.Slice(owned.begin, owned.size()), rank, {});
  }
  return MakeDecisionLine(input, squares, norms.sums());
}

double NormOf(const std::vector<std::vector<float>>& gradients, double p) {
  NormSum sum(p);
  for (const auto& gradient : gradients) sum.Add(gradient);
  return sum.norm();
}

const std::vector<std::pair<std::string, std::vector<std::int64_t>>> kShapes = {
    {"embed", {40, 50}}, {"norm", {50}}, {"weight", {50, 130}}, {"bias", {130}}, {"head.w", {9}}};
const ParameterGroups kGroups = {{.name = "head", .pattern = "head.*"},
                                 {.name = "vectors", .max_dimensions = 1}};

GradientSummary SummaryOf(int ranks, const StepInput& input, const ParameterGroups& groups,
                          Bytes bucket = KiB(4)) {
  const FlatLayout layout = LayoutOf(kShapes, ranks, bucket);
  const auto plan = MakeNormPlan(layout, input.norm, groups);
  std::vector<std::int64_t> lines;
  for (int rank = 0; rank < ranks; ++rank) {
    const DecisionLine line = LineOf(layout, FlatGradients(layout), Rank(rank), input, groups);
    lines.insert(lines.end(), line.begin(), line.end());
  }
  return Summarize(layout, lines, input.loss_scale, plan ? &*plan : nullptr).value();
}

TEST(Decision, HasTheNormOfAnyPOfAllGradients) {
  std::vector<std::vector<float>> all;
  for (const auto& [name, sizes] : kShapes) {
    all.push_back(GradientOf(name, ParameterInfo{.sizes = sizes}.count()));
  }
  for (const double p : {1.0, 2.0, 3.0, 2.5, kInfinity}) {
    const double expected = NormOf(all, p) / (64 * 2);
    for (const int ranks : {1, 2, 3, 4}) {
      const StepInput input{.count = 64 / ranks, .loss_scale = 2, .norm = {.p = p}};
      const double norm = SummaryOf(ranks, input, {}).norm;
      const double counted = static_cast<double>(64 / ranks * ranks) / 64;
      EXPECT_NEAR(norm * counted, expected, 1e-14 * expected) << p << ", " << ranks << " ranks";
      if (p != 2 && p != kInfinity) continue;
      EXPECT_EQ(norm, SummaryOf(ranks, input, {}, MiB(1)).norm) << "whatever the buckets";
    }
  }
}

TEST(Decision, HasTheNormOfEachGroup) {
  std::map<std::string, std::vector<float>> of;
  for (const auto& [name, sizes] : kShapes) {
    of[name] = GradientOf(name, ParameterInfo{.sizes = sizes}.count());
  }
  for (const double p : {1.0, 2.0, 3.0, kInfinity}) {
    for (const int ranks : {1, 2, 4}) {
      const GradientSummary summary =
          SummaryOf(ranks, {.norm = {.p = p, .scope = NormScope::kEachGroup}}, kGroups);
      const double count = ranks;
      ASSERT_EQ(summary.group_norms.size(), 3u);
      const double expected[] = {NormOf({of["head.w"]}, p), NormOf({of["norm"], of["bias"]}, p),
                                 NormOf({of["embed"], of["weight"]}, p)};
      for (std::size_t g = 0; g < 3; ++g) {
        EXPECT_NEAR(summary.group_norms[g] * count, expected[g], 1e-14 * expected[g])
            << p << ", group " << g << ", " << ranks << " ranks";
      }
      const double all = SummaryOf(ranks, {.norm = {.p = p}}, kGroups).norm;
      EXPECT_NEAR(summary.norm, all, 1e-14 * all);
    }
  }
}

TEST(Decision, WithoutGroupNormsThereAreNone) {
  EXPECT_TRUE(SummaryOf(2, {}, kGroups).group_norms.empty());
  EXPECT_TRUE(SummaryOf(2, {.norm = {.p = 1}}, kGroups).group_norms.empty());
}

// Tensor parallelism: both ranks hold "shared", with the same gradient, and a part of their own.
TEST(Decision, ADuplicateOnTwoRanksIsCountedOnce) {
  const std::vector<FlatLayout> layouts = {LayoutOf({{"shared", {300}}, {"part.0", {700}}}, 1),
                                           LayoutOf({{"shared", {300}}, {"part.1", {650}}}, 1)};
  const auto shared = GradientOf("shared", 300);
  for (const double p : {1.0, 2.0, 3.0, kInfinity}) {
    const double once =
        NormOf({shared, GradientOf("part.0", 700), GradientOf("part.1", 650)}, p) / 2;
    std::vector<double> norms(2);
    std::vector<std::thread> threads;
    for (const auto& communicator : MakeThreadGroup(WorldSize(2))) {
      threads.emplace_back([&, communicator] {
        const auto r = static_cast<std::size_t>(communicator->rank().value());
        StepInput input{.norm = {.p = p}};
        if (r == 1) input.norm.not_counted = {"sha*"};
        const FlatLayout& layout = layouts[r];
        // The squares of OwnedSquares count twice: the plan must be there on both.
        auto plan = MakeNormPlan(layout, input.norm, {});
        if (!plan) {
          plan = internal::NormPlan{.p = p,
                                    .norm_of = std::vector<int>(layout.parameters().size(), 0)};
        }
        OwnedSquares squares;
        OwnedNorms owned(*plan);
        auto flat = FlatGradients(layout);
        for (int b = 0; b < static_cast<int>(layout.buckets().size()); ++b) {
          const ElementRange range = layout.buckets()[static_cast<std::size_t>(b)].slice(Rank(0));
          const Buffer slice = View(flat).Slice(range.begin, range.size());
          squares.AddSlice(layout, b, slice, Rank(0), {});
          owned.AddSlice(layout, b, slice, Rank(0), {});
        }
        const DecisionLine line = MakeDecisionLine(input, squares, owned.sums());
        std::vector<std::int64_t> lines(2 * line.size());
        ASSERT_OK(communicator->AllGather(View(line), View(lines)).Wait());
        norms[r] = Summarize(layout, lines, 1, &*plan)->norm;
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_NEAR(norms[0], once, 1e-14 * once) << p;
    EXPECT_EQ(norms[1], norms[0]) << p;
  }
}

TEST(Decision, WhatIsNotCountedMustBeFiniteAllTheSame) {
  const FlatLayout layout = LayoutOf(kShapes, 1);
  auto gradients = FlatGradients(layout);
  gradients[static_cast<std::size_t>(layout.slot(3)->offset)] = static_cast<float>(kInfinity);
  const StepInput input{.norm = {.not_counted = {"bias"}}};
  const auto plan = MakeNormPlan(layout, input.norm, {});
  const auto summary = Summarize(layout, LineOf(layout, gradients, Rank(0), input), 1, &*plan);
  ASSERT_OK(summary);
  EXPECT_FALSE(summary->finite);
  EXPECT_EQ(summary->not_finite, "bias");
  EXPECT_TRUE(std::isfinite(summary->norm));
}

TEST(Decision, GradientsBelowFp32HaveTheNormOfTheirValues) {
  const FlatLayout layout = LayoutOf(kShapes, 1);
  const auto gradients = FlatGradients(layout);
  std::vector<BFloat16> low(gradients.size());
  std::vector<float> rounded(gradients.size());
  for (std::size_t i = 0; i < low.size(); ++i) {
    low[i] = BFloat16(gradients[i]);
    rounded[i] = static_cast<float>(low[i]);
  }
  for (const double p : {1.0, 2.0, 3.0, kInfinity}) {
    const StepInput input{.norm = {.p = p, .scope = NormScope::kEachGroup}};
    const auto plan = MakeNormPlan(layout, input.norm, kGroups);
    const auto of = [&](const DecisionLine& line) {
      return Summarize(layout, line, 1, &*plan)->group_norms;
    };
    EXPECT_EQ(of(LineOf(layout, low, Rank(0), input, kGroups, DType::kBFloat16)),
              of(LineOf(layout, rounded, Rank(0), input, kGroups)))
        << p;
  }
}

TEST(Decision, ALossScaleThatCannotBeDividedByIsRefused) {
  const FlatLayout layout = LayoutOf(kShapes, 1);
  const DecisionLine line = LineOf(layout, FlatGradients(layout), Rank(0), {});
  for (const double scale : {0.0, -1.0, kInfinity, std::nan("")}) {
    EXPECT_THAT(Summarize(layout, line, scale),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("loss_scale is ")));
  }
}

}  // namespace
}  // namespace ait

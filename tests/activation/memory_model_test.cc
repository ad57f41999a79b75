// SPDX-License-Identifier: Apache-2.0
#include "ait/activation/memory_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <optional>
#include <set>

#include "support/status_matchers.h"

namespace ait {
namespace {

using ::testing::HasSubstr;
using testing::StatusIs;

constexpr std::int64_t kG = 1'000'000'000;

// fp16 parameters and gradients, Adam: the example of the ZeRO paper's kind, without masters.
TrainingSetup SevenBillion() {
  return {.parameters = {.elements = 7 * kG, .largest_unit = 200'000'000},
          .bytes = {.parameters = 2, .gradients = 2, .masters = 0}};
}

MemoryParts PartsOf(const TrainingSetup& setup) {
  const auto prediction = PredictMemory(setup);
  EXPECT_OK(prediction);
  return prediction.ok() ? prediction->rank : MemoryParts();
}

TEST(PredictMemory, SevenBillionInFp16WithAdamTake84GB) {
  const MemoryParts parts = PartsOf(SevenBillion());
  EXPECT_EQ(parts.parameters, 14 * kG);
  EXPECT_EQ(parts.gradients, 14 * kG);
  EXPECT_EQ(parts.masters, 0);
  EXPECT_EQ(parts.states, 56 * kG);
  EXPECT_EQ(parts.model_states(), 84 * kG);
  EXPECT_EQ(parts.total(), 84 * kG);
}

TEST(PredictMemory, StagesShardOverTheRanks) {
  TrainingSetup setup = SevenBillion();
  for (const int ranks : {1, 2, 8, 64}) {
    setup.ranks = ranks;
    setup.zero_stage = 1;
    EXPECT_EQ(PartsOf(setup).model_states(), 28 * kG + 56 * kG / ranks);
    setup.zero_stage = 2;
    EXPECT_EQ(PartsOf(setup).model_states(), 14 * kG + 70 * kG / ranks);
    EXPECT_EQ(PartsOf(setup).buckets, 2 * setup.bucket_cap.value());
    setup.zero_stage = 3;
    EXPECT_EQ(PartsOf(setup).model_states(), 84 * kG / ranks);
    EXPECT_EQ(PartsOf(setup).gathered, 2 * 200'000'000 * 2);  // prefetch 1
  }
}

TEST(PredictMemory, CountsWhatStaysOverMicroSteps) {
  TrainingSetup setup = SevenBillion();
  setup.ranks = 4;
  setup.zero_stage = 2;
  setup.gradients = KeptGradients::kAll;
  EXPECT_EQ(PartsOf(setup).gradients, 14 * kG);
  EXPECT_EQ(PartsOf(setup).buckets, 0);
  setup.zero_stage = 1;
  setup.gradients = KeptGradients::kReduced;
  EXPECT_EQ(PartsOf(setup).gradients, 14 * kG);
  EXPECT_GT(PartsOf(setup).buckets, 0);
}

TEST(PredictMemory, KnowsTheOptimizers) {
  TrainingSetup setup{.parameters = {.elements = 1'000'000, .small = 64'000, .factors = 3000}};
  const auto states = [&](OptimizerKind kind, StateFormat format = StateFormat::kFloat32) {
    setup.optimizer = kind;
    setup.state = format;
    return PartsOf(setup).states;
  };
  EXPECT_EQ(states(OptimizerKind::kAdam), 8'000'000);
  EXPECT_EQ(states(OptimizerKind::kLion), 4'000'000);
  EXPECT_EQ(states(OptimizerKind::kSgdMomentum), 4'000'000);
  EXPECT_EQ(states(OptimizerKind::kSgd), 0);
  EXPECT_EQ(states(OptimizerKind::kAdafactor), 12'000);
  EXPECT_EQ(states(OptimizerKind::kAdam, StateFormat::kBlockwise8bit),
            2 * (4 * 64'000 + 936'000 + 936'000 / 16));
  for (const char* name : {"adam", "lion", "sgd-momentum", "sgd", "adafactor"}) {
    EXPECT_EQ(Name(OptimizerNamed(name).value()), name);
  }
  EXPECT_THAT(Message(OptimizerNamed("adamant").status()), HasSubstr("there are adam, lion"));
}

TEST(PredictMemory, OfStateInAFileOnlyChunksAreInMemory) {
  TrainingSetup setup = SevenBillion();
  setup.bytes.masters = 4;
  setup.offload.directory = "/tmp";
  const auto prediction = PredictMemory(setup);
  ASSERT_OK(prediction);
  EXPECT_EQ(prediction->rank.states + prediction->rank.masters, 0);
  EXPECT_EQ(prediction->rank.staging, MiB(16).value());
  EXPECT_EQ(prediction->file_bytes, 84 * kG);
  setup.optimizer = OptimizerKind::kAdafactor;
  EXPECT_THAT(PredictMemory(setup), StatusIs(StatusCode::kInvalidArgument));
}

TEST(PredictMemory, AddsThePeakOfTheSegments) {
  TrainingSetup setup = SevenBillion();
  setup.segments = {{.name = "first",
                     .keep = {.held_bytes = 1000, .peak_bytes = 1000},
                     .recompute = ActionCost{.held_bytes = 100, .peak_bytes = 1200}},
                    {.name = "second", .keep = {.held_bytes = 500, .peak_bytes = 700}}};
  setup.waste = 0.1;
  auto prediction = PredictMemory(setup);
  ASSERT_OK(prediction);
  EXPECT_EQ(prediction->rank.activations, 1000);
  EXPECT_EQ(prediction->rank.working, 700);
  EXPECT_EQ(prediction->rank.slack, 170);
  EXPECT_EQ(prediction->peak_segment, "second");
  setup.plan = {SegmentAction::kRecompute, SegmentAction::kKeep};
  prediction = PredictMemory(setup);
  ASSERT_OK(prediction);
  EXPECT_EQ(prediction->rank.activations + prediction->rank.working, 1200);
  EXPECT_EQ(prediction->peak_segment, "first");
}

TEST(PredictMemory, AHostHasAllItsRanks) {
  TrainingSetup setup = SevenBillion();
  setup.ranks = 8;
  EXPECT_EQ(PredictMemory(setup)->host_total(), 8 * 84 * kG);
  setup.ranks_per_host = 2;
  EXPECT_EQ(PredictMemory(setup)->host_total(), 2 * 84 * kG);
  setup.ranks_per_host = 5;
  setup.nodes_per_host = 2;
  EXPECT_EQ(PredictMemory(setup)->node_total(), 3 * 84 * kG) << "of the node that has most";
}

TEST(PredictMemory, IsShownBesideWhatWasMeasured) {
  const auto prediction = PredictMemory(SevenBillion());
  ASSERT_OK(prediction);
  EXPECT_THAT(prediction->Describe(), ::testing::ContainsRegex("states +56.00\n"));
  EXPECT_THAT(prediction->Describe(), ::testing::ContainsRegex("total +84.00\n"));
  MemoryParts measured = prediction->rank;
  measured.states = 70 * kG;
  EXPECT_THAT(prediction->DescribeBeside(measured),
              ::testing::ContainsRegex("states +56.00 +70.00 +-20.0 %"));
}

TEST(PredictMemory, RefusesWhatCannotBe) {
  const auto refused = [](auto change) {
    TrainingSetup setup = SevenBillion();
    change(setup);
    return Message(PredictMemory(setup).status());
  };
  EXPECT_THAT(refused([](auto& s) { s.parameters.elements = 0; }), HasSubstr("elements is 0"));
  EXPECT_THAT(refused([](auto& s) { s.parameters.elements = std::int64_t{1} << 60; }),
              HasSubstr("at most"));
  EXPECT_THAT(refused([](auto& s) { s.zero_stage = 4; }), HasSubstr("allowed are 0 to 3"));
  EXPECT_THAT(refused([](auto& s) { s.ranks = 0; }), HasSubstr("ranks is 0"));
  EXPECT_THAT(refused([](auto& s) {
                s.zero_stage = 3;
                s.ranks = 2;
                s.parameters.largest_unit = 0;
              }),
              HasSubstr("largest_unit"));
  EXPECT_THAT(refused([](auto& s) { s.plan = {SegmentAction::kKeep}; }), HasSubstr("0 segments"));
  EXPECT_THAT(refused([](auto& s) {
                s.segments = {{.name = "embedding", .keep = {}}};
                s.plan = {SegmentAction::kRecompute};
              }),
              HasSubstr("recompute for segment embedding"));
  EXPECT_THAT(refused([](auto& s) { s.waste = std::numeric_limits<double>::quiet_NaN(); }),
              HasSubstr("waste"));
}

TEST(PredictMemory, RefusesBytesThatDoNotFit) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  TrainingSetup setup = SevenBillion();
  setup.segments = {{.name = "a", .keep = {.held_bytes = kMost / 2, .peak_bytes = kMost / 2}},
                    {.name = "b", .keep = {.held_bytes = 4, .peak_bytes = 4}}};
  EXPECT_THAT(PredictMemory(setup), StatusIs(StatusCode::kOutOfRange));
  setup.segments = {{.name = "a", .keep = {.peak_bytes = kMost / 2}}};
  setup.waste = 10;
  EXPECT_THAT(PredictMemory(setup), StatusIs(StatusCode::kOutOfRange));
  setup.waste = 0;
  EXPECT_OK(PredictMemory(setup));
  setup.ranks = 2;  // of one host
  EXPECT_THAT(PredictMemory(setup), StatusIs(StatusCode::kOutOfRange));
  setup.segments = {{.name = "a", .keep = {.peak_bytes = -1}}};
  EXPECT_THAT(PredictMemory(setup), StatusIs(StatusCode::kInvalidArgument));
  constexpr std::int64_t kMillion = 1'000'000;
  EXPECT_THAT(TransformerSegments({.layers = 1,
                                   .hidden = kMillion,
                                   .heads = 1,
                                   .sequence = kMillion,
                                   .micro_batch = kMillion}),
              StatusIs(StatusCode::kOutOfRange));
}

TrainingSetup WithLayers() {
  TrainingSetup setup{.parameters = {.elements = 1'200'000'000, .largest_unit = 50'000'000},
                      .bytes = {.parameters = 2, .gradients = 4, .masters = 4, .is_bf16 = true},
                      .ranks = 4};
  setup.micro_batch = 8;
  setup.segments =
      TransformerSegments(
          {.layers = 24, .hidden = 2048, .heads = 16, .sequence = 2048, .micro_batch = 8})
          .value();
  setup.step_seconds = 1;
  return setup;
}

TEST(SuggestRemedies, PredictsWhatEachWouldDo) {
  const TrainingSetup setup = WithLayers();
  const std::int64_t total = PartsOf(setup).total();
  const auto remedies = SuggestRemedies(setup, Bytes(total / 2));
  std::set<std::string> words;
  for (const Remedy& remedy : remedies) {
    EXPECT_GT(remedy.saves_bytes, 0) << remedy.what;
    EXPECT_GE(remedy.step_factor, 1) << remedy.what;
    EXPECT_EQ(total - remedy.saves_bytes, PartsOf(remedy.setup).total()) << remedy.what;
    EXPECT_EQ(remedy.fits, PartsOf(remedy.setup).total() <= total / 2) << remedy.what;
    words.insert(remedy.what.substr(0, remedy.what.find(' ')));
  }
  EXPECT_THAT(words, ::testing::IsSupersetOf(
                         {"ZeRO", "8-bit", "Adafactor", "optimizer", "activation", "micro-batch"}));
  EXPECT_TRUE(remedies.front().fits);
  bool fits = true;
  double factor = 0;
  for (const Remedy& remedy : remedies) {
    EXPECT_TRUE(fits || !remedy.fits) << "those that suffice come first";
    if (remedy.fits) {
      EXPECT_GE(remedy.step_factor, factor) << "the cheapest first";
    }
    fits = remedy.fits;
    factor = remedy.step_factor;
  }
}

/// The first remedy whose text begins so.
std::optional<Remedy> RemedyFor(const TrainingSetup& setup, std::int64_t budget,
                                std::string_view what) {
  for (const Remedy& remedy : SuggestRemedies(setup, Bytes(budget))) {
    if (remedy.what.starts_with(what)) return remedy;
  }
  return std::nullopt;
}

TEST(SuggestRemedies, OffersStage3WhereUnitsAreNotLaidOut) {
  // As an engine below stage 3 has it: all is whole, and there are no units.
  TrainingSetup setup = WithLayers();
  setup.zero_stage = 2;
  setup.parameters.whole = setup.parameters.elements;
  setup.parameters.largest_unit = 0;
  auto remedy = RemedyFor(setup, 1, "ZeRO stage 3 instead of 2");
  ASSERT_TRUE(remedy.has_value());
  EXPECT_THAT(remedy->cost, HasSubstr("units are guessed"));
  // Of 2.4 GB of parameters a quarter stays, and two units of an eighth are gathered; the buckets
  // are as they were.
  EXPECT_EQ(remedy->saves_bytes, 2 * 1'200'000'000LL * 3 / 4 - 2 * 2 * 150'000'000LL);
  setup.parameters.largest_unit = 200'000'000;  // an embedding
  remedy = RemedyFor(setup, 1, "ZeRO stage 3 instead of 2");
  ASSERT_TRUE(remedy.has_value());
  EXPECT_EQ(remedy->saves_bytes, 2 * 1'200'000'000LL * 3 / 4 - 2 * 2 * 200'000'000LL);
}

TEST(SuggestRemedies, HelpAtStage3WithEverythingWhole) {
  TrainingSetup setup = WithLayers();
  setup.zero_stage = 3;
  setup.parameters.whole = setup.parameters.elements;
  setup.parameters.largest_unit = 0;
  EXPECT_EQ(PartsOf(setup).gathered, 0);
  EXPECT_EQ(PartsOf(setup).parameters, 2 * setup.parameters.elements);
  EXPECT_TRUE(RemedyFor(setup, 1, "activation checkpointing").has_value());
}

TEST(SuggestRemedies, CutsMicroBatchesThatAreNotEven) {
  TrainingSetup setup = WithLayers();
  setup.micro_batch = 15;
  const std::int64_t total = PartsOf(setup).total();
  auto remedy = RemedyFor(setup, total - 1, "micro-batch");
  ASSERT_TRUE(remedy.has_value());
  EXPECT_EQ(remedy->what, "micro-batch 5 instead of 15, accumulating 3 micro-steps");
  remedy = RemedyFor(setup, total - remedy->saves_bytes - 1, "micro-batch");
  ASSERT_TRUE(remedy.has_value());
  EXPECT_EQ(remedy->what, "micro-batch 3 instead of 15, accumulating 5 micro-steps");
  remedy = RemedyFor(setup, 1, "micro-batch");
  ASSERT_TRUE(remedy.has_value());
  EXPECT_EQ(remedy->setup.micro_batch, 1);
  EXPECT_EQ(remedy->setup.accumulate, 15);
}

TEST(SuggestRemedies, OffersRemaindersForBf16Alone) {
  TrainingSetup setup = WithLayers();
  EXPECT_TRUE(RemedyFor(setup, 1, "Masters::kRemainder").has_value());
  setup.bytes.is_bf16 = false;  // fp16
  EXPECT_FALSE(RemedyFor(setup, 1, "Masters::kRemainder").has_value());
}

TEST(SuggestRemedies, RecomputesNoMoreThanNeeded) {
  TrainingSetup setup = WithLayers();
  const std::int64_t total = PartsOf(setup).total();
  const auto plan = [&](std::int64_t budget) {
    for (const Remedy& remedy : SuggestRemedies(setup, Bytes(budget))) {
      if (remedy.what.starts_with("activation")) return remedy;
    }
    return Remedy();
  };
  EXPECT_LT(plan(total * 9 / 10).step_factor, plan(total * 7 / 10).step_factor);
  EXPECT_LE(PartsOf(plan(total * 9 / 10).setup).total(), total * 9 / 10);
}

TEST(RemediesUntil, CombinesThemUntilTheBudgetIsKept) {
  const TrainingSetup setup = WithLayers();
  const std::int64_t total = PartsOf(setup).total();
  EXPECT_TRUE(RemediesUntil(setup, Bytes(total))->empty());
  const auto remedies = RemediesUntil(setup, Bytes(total / 10));
  ASSERT_OK(remedies);
  EXPECT_GT(remedies->size(), 1u);
  EXPECT_LE(PartsOf(remedies->back().setup).total(), total / 10);
  const auto none = RemediesUntil(setup, MiB(1));
  EXPECT_THAT(none, StatusIs(StatusCode::kResourceExhausted));
  EXPECT_THAT(Message(none.status()), HasSubstr("the least that is possible"));
  EXPECT_THAT(Message(none.status()), HasSubstr("of which the largest part is "));
}

TEST(TransformerSegments, AreKorthikantisFormulas) {
  const TransformerShape shape{.layers = 2,
                               .hidden = 64,
                               .heads = 4,
                               .sequence = 32,
                               .micro_batch = 3,
                               .attention = AttentionKind::kMaterialized};
  const auto segments = TransformerSegments(shape);
  ASSERT_OK(segments);
  const std::int64_t sbh = 32 * 3 * 64;
  EXPECT_EQ(segments->size(), 2u);
  EXPECT_EQ((*segments)[0].keep.held_bytes, sbh * 34 + 5 * 4 * 32 * (32 * 3));
  EXPECT_EQ((*segments)[0].recompute->held_bytes, 2 * sbh);
  EXPECT_THAT(TransformerSegments({.layers = 1, .hidden = 10, .heads = 3, .sequence = 1}),
              StatusIs(StatusCode::kInvalidArgument));
}

}  // namespace
}  // namespace ait

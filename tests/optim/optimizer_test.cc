// SPDX-License-Identifier: Apache-2.0
#include "ait/optim/optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

#include "ait/memory/heap.h"
#include "ait/memory/statistics.h"
#include "ait/optim/adam.h"
#include "ait/optim/lion.h"
#include "ait/optim/sgd.h"
#include "optim/optim_fixtures.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::kAllSimdLevels;
using ::ait::testing::LayoutOf;
using ::ait::testing::RandomFloats;
using ::ait::testing::SameBits;
using ::ait::testing::StatusIs;
using ::ait::testing::ThreadsOf;
using ::testing::AllOf;
using ::testing::HasSubstr;

const std::vector<std::int64_t> kSizes = {1, 7, 63, 64, 65, 0, 127, 1000, 30'001};
const ParameterGroups kGroups = {{.name = "slow", .pattern = "p7", .learning_rate = 1e-4},
                                 NoDecayForNormsAndBiases()};

// What holds for every optimizer.
class OptimizerContract : public ::testing::TestWithParam<std::shared_ptr<const Optimizer>> {
 protected:
  struct Outcome {
    std::vector<float> parameters;
    std::vector<float> gradients;
    std::map<std::string, std::vector<float>> state;
    bool operator==(const Outcome& other) const {
      return SameBits(parameters, other.parameters) && SameBits(gradients, other.gradients) &&
             state.size() == other.state.size() &&
             std::equal(state.begin(), state.end(), other.state.begin(), [](auto& a, auto& b) {
               return a.first == b.first && SameBits(a.second, b.second);
             });
    }
  };

  std::int64_t size() const { return layout_.owned.back().end; }

  // Three steps, each over the slices that `cuts` of the owned elements give.
  Outcome Run(BindOptions options, const std::vector<std::int64_t>& cuts = {},
              GradientsAfter after = GradientsAfter::kKept) {
    Outcome outcome{.parameters = RandomFloats(size(), 1)};
    auto bound = GetParam()->Bind(layout_, std::move(options));
    EXPECT_OK(bound);
    for (unsigned step = 0; step < 3; ++step) {
      outcome.gradients = RandomFloats(size(), 100 + step);
      EXPECT_OK((*bound)->BeginStep(
          {.learning_rate_factor = 0.5, .gradient_scale = 0.25, .gradients_after = after}));
      std::int64_t begin = 0;
      std::vector<std::int64_t> ends = cuts;
      ends.push_back(size());
      for (std::int64_t end : ends) {
        EXPECT_OK((*bound)->Update(SliceOf(outcome, begin, end)));
        begin = end;
      }
    }
    for (const StateSlice& slice : (*bound)->State()) {
      const auto values = slice.floats();
      outcome.state[StrCat(slice.parameter, "/", slice.state)] = {values.begin(), values.end()};
    }
    return outcome;
  }

  static UpdateSlice SliceOf(Outcome& outcome, std::int64_t begin, std::int64_t end) {
    const auto offset = static_cast<std::size_t>(begin);
    const auto count = static_cast<std::size_t>(end - begin);
    return {.begin = begin,
            .parameters = View(std::span(outcome.parameters).subspan(offset, count)),
            .gradients = View(std::span(outcome.gradients).subspan(offset, count))};
  }

  ParameterLayout layout_ = LayoutOf(kSizes);
};

INSTANTIATE_TEST_SUITE_P(
    All, OptimizerContract,
    ::testing::Values(
        std::make_shared<AdamW>(AdamWOptions{}, kGroups),
        std::make_shared<Adam>(AdamOptions{.weight_decay = 0.1}, kGroups),
        std::make_shared<AdamW>(AdamWOptions{.variant = AdamVariant::kAmsgrad}, kGroups),
        std::make_shared<Lion>(LionOptions{.weight_decay = 0.1}, kGroups),
        std::make_shared<Sgd>(SgdOptions{.weight_decay = 0.1}, kGroups),
        std::make_shared<Sgd>(SgdOptions{.momentum = 0.9, .dampening = 0.1, .weight_decay = 0.1}),
        std::make_shared<Sgd>(SgdOptions{.momentum = 0.9, .momentum_form = Momentum::kNesterov})),
    [](const auto& instance) { return StrCat(instance.param->name(), "_", instance.index); });

TEST_P(OptimizerContract, AllSimdLevelsGiveTheSameBits) {
  const Outcome best = Run({});
  for (SimdLevel level : kAllSimdLevels) {
    EXPECT_EQ(Run({.max_simd_level = level}), best) << Name(level);
  }
}

TEST_P(OptimizerContract, AnyCutIntoSlicesGivesTheSameBits) {
  const Outcome whole = Run({});
  EXPECT_EQ(Run({}, {1, 2, 5, 64, 70, 100, 200, 333, 12'345, 12'346}), whole);
  EXPECT_EQ(Run({}, {0, 0, 64, 20'000}), whole);
}

TEST_P(OptimizerContract, AnyNumberOfThreadsGivesTheSameBits) {
  const Outcome serial = Run({});
  EXPECT_EQ(Run({.executor = ThreadsOf(2)}), serial);
  EXPECT_EQ(Run({.executor = ThreadsOf(5)}), serial);
}

TEST_P(OptimizerContract, ShardsTogetherGiveTheBitsOfTheWhole) {
  const Outcome whole = Run({});
  const ParameterLayout all = layout_;
  Outcome shards{.parameters = RandomFloats(size(), 1), .gradients = whole.gradients};
  std::map<std::string, std::vector<float>> state;
  const std::vector<std::vector<ElementRange>> owners = {
      {{0, 96}, {192, 300}, {10'000, 20'000}}, {{96, 192}, {300, 10'000}}, {}, {{20'000, size()}}};
  for (const auto& owned : owners) {
    ParameterLayout layout = all;
    layout.owned = owned;
    ASSERT_OK_AND_ASSIGN(const auto bound, GetParam()->Bind(layout));
    for (unsigned step = 0; step < 3; ++step) {
      std::vector<float> kept = std::exchange(shards.gradients, RandomFloats(size(), 100 + step));
      ASSERT_OK(bound->BeginStep({.learning_rate_factor = 0.5, .gradient_scale = 0.25}));
      for (const ElementRange& range : owned) {
        ASSERT_OK(bound->Update(SliceOf(shards, range.begin, range.end)));
      }
    }
    for (const StateSlice& slice : bound->State()) {
      auto& values = state[StrCat(slice.parameter, "/", slice.state)];
      values.resize(std::max(values.size(), slice.begin + slice.floats().size()));
      std::ranges::copy(slice.floats(), values.begin() + slice.begin);
    }
  }
  shards.state = state;
  EXPECT_EQ(shards, whole);
}

TEST_P(OptimizerContract, ZeroingChangesNothingButTheGradients) {
  const Outcome kept = Run({});
  Outcome zeroed = Run({}, {}, GradientsAfter::kZero);
  for (const ParameterSegment& parameter : layout_.parameters) {
    const auto slice = SliceOf(zeroed, parameter.begin, parameter.range().end);
    const auto* g = static_cast<const float*>(slice.gradients.data);
    EXPECT_TRUE(std::all_of(g, g + slice.gradients.count, [](float x) { return x == 0; }))
        << parameter.name;
  }
  zeroed.gradients = kept.gradients;
  EXPECT_EQ(zeroed, kept);
}

TEST_P(OptimizerContract, PaddingIsNeitherReadNorWritten) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> expected = Run({}).parameters;
  std::vector<bool> is_padding(static_cast<std::size_t>(size()), true);
  for (const ParameterSegment& parameter : layout_.parameters) {
    std::fill_n(is_padding.begin() + parameter.begin, parameter.size(), false);
  }
  Outcome outcome{.parameters = RandomFloats(size(), 1)};
  ASSERT_OK_AND_ASSIGN(const auto bound, GetParam()->Bind(layout_));
  for (unsigned step = 0; step < 3; ++step) {
    outcome.gradients = RandomFloats(size(), 100 + step);
    for (std::size_t i = 0; i < is_padding.size(); ++i) {
      if (is_padding[i]) outcome.gradients[i] = outcome.parameters[i] = nan;
    }
    ASSERT_OK(bound->BeginStep({.learning_rate_factor = 0.5,
                                .gradient_scale = 0.25,
                                .gradients_after = GradientsAfter::kZero}));
    ASSERT_OK(bound->Update(SliceOf(outcome, 0, size())));
  }
  for (std::size_t i = 0; i < is_padding.size(); ++i) {
    if (is_padding[i]) {
      ASSERT_TRUE(std::isnan(outcome.parameters[i]) && std::isnan(outcome.gradients[i])) << i;
    } else {
      ASSERT_EQ(outcome.parameters[i], expected[i]) << i;
    }
  }
}

TEST_P(OptimizerContract, StateIsNamedAndContinuesWhereItWasSaved) {
  ASSERT_OK_AND_ASSIGN(const auto first, GetParam()->Bind(layout_));
  ASSERT_OK_AND_ASSIGN(const auto second, GetParam()->Bind(layout_));
  Outcome outcome{.parameters = RandomFloats(size(), 1), .gradients = RandomFloats(size(), 2)};
  ASSERT_OK(first->BeginStep({}));
  ASSERT_OK(first->Update(SliceOf(outcome, 0, size())));

  const auto saved = first->State();
  const auto names = GetParam()->state_names();
  EXPECT_EQ(saved.size(), names.size() * (kSizes.size() - 1)) << "the empty parameter has no state";
  const auto loaded = second->State();
  ASSERT_EQ(saved.size(), loaded.size());
  for (std::size_t i = 0; i < saved.size(); ++i) {
    EXPECT_EQ(saved[i].parameter, loaded[i].parameter);
    EXPECT_EQ(saved[i].state, names[i % names.size()]);
    EXPECT_EQ(saved[i].begin, 0);
    std::ranges::copy(saved[i].floats(), loaded[i].floats().begin());
  }
  ASSERT_OK(second->set_step(first->step()));
  EXPECT_EQ(second->step(), 1);

  Outcome other = outcome;
  for (auto& [bound, numbers] : {std::pair(&first, &outcome), std::pair(&second, &other)}) {
    ASSERT_OK((*bound)->BeginStep({}));
    ASSERT_OK((*bound)->Update(SliceOf(*numbers, 0, size())));
  }
  EXPECT_EQ(outcome, other);
}

TEST_P(OptimizerContract, StateTakesFourBytesAnElementAndNameBesideAlignment) {
  ASSERT_OK_AND_ASSIGN(const auto bound, GetParam()->Bind(layout_));
  EXPECT_EQ(bound->state_bytes(),
            static_cast<std::int64_t>(GetParam()->state_names().size()) * 4 * size());
}

TEST_P(OptimizerContract, ASliceOutsideOfTheOwnedRangesIsRefusedAndChangesNothing) {
  layout_.owned = {{0, 128}, {192, 256}};
  ASSERT_OK_AND_ASSIGN(const auto bound, GetParam()->Bind(layout_));
  Outcome outcome{.parameters = RandomFloats(512, 1), .gradients = RandomFloats(512, 2)};
  const Outcome before = outcome;
  EXPECT_THAT(bound->Update(SliceOf(outcome, 0, 128)),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("BeginStep")));
  ASSERT_OK(bound->BeginStep({}));
  for (const auto& [begin, end] :
       {std::pair(0, 129), std::pair(100, 200), std::pair(130, 140), std::pair(250, 300)}) {
    EXPECT_THAT(
        bound->Update(SliceOf(outcome, begin, end)),
        StatusIs(StatusCode::kInvalidArgument, HasSubstr(StrCat("[", begin, ", ", end, ")"))));
  }
  UpdateSlice uneven = SliceOf(outcome, 0, 64);
  uneven.gradients.count = 63;
  EXPECT_THAT(bound->Update(uneven),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("64 parameters"), HasSubstr("63 gradients"))));
  EXPECT_EQ(outcome, before);
}

TEST_P(OptimizerContract, ARankThatOwnsNothingTakesPart) {
  layout_.owned = {};
  ASSERT_OK_AND_ASSIGN(const auto bound, GetParam()->Bind(layout_));
  ASSERT_OK(bound->BeginStep({}));
  EXPECT_OK(bound->Update({}));
  EXPECT_THAT(bound->State(), ::testing::IsEmpty());
  EXPECT_EQ(bound->state_bytes(), 0);
  EXPECT_EQ(bound->step(), 1);
}

TEST_P(OptimizerContract, NumbersOfAStepMustBeFinite) {
  ASSERT_OK_AND_ASSIGN(const auto bound, GetParam()->Bind(layout_));
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_THAT(bound->BeginStep({.gradient_scale = infinity}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("gradient_scale is inf")));
  EXPECT_THAT(bound->BeginStep({.gradient_scale = 1e300}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("gradient_scale is 1e+300")));
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(bound->BeginStep({.learning_rate_factor = nan}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("learning_rate_factor is nan")));
  EXPECT_EQ(bound->step(), 0) << "a refused step is not counted";
  EXPECT_THAT(bound->set_step(-1), StatusIs(StatusCode::kInvalidArgument, HasSubstr("-1")));
}

TEST_P(OptimizerContract, SubnormalNumbersAreKept) {
  ParameterLayout layout = LayoutOf({100});
  ASSERT_OK_AND_ASSIGN(const auto baseline,
                       GetParam()->Bind(layout, {.max_simd_level = SimdLevel::kBaseline}));
  ASSERT_OK_AND_ASSIGN(const auto best, GetParam()->Bind(layout));
  Outcome a{.parameters = RandomFloats(128, 1, 1e-40f), .gradients = RandomFloats(128, 2, 1e-41f)};
  Outcome b = a;
  ASSERT_OK(baseline->BeginStep({.learning_rate_factor = 1e-36}));
  ASSERT_OK(best->BeginStep({.learning_rate_factor = 1e-36}));
  ASSERT_OK(baseline->Update(SliceOf(a, 0, 128)));
  ASSERT_OK(best->Update(SliceOf(b, 0, 128)));
  EXPECT_EQ(a, b);
  EXPECT_NE(a.parameters[5], 0);
}

TEST(Optimizer, BindRefusesALayoutOrAnExecutorThatCannotBe) {
  EXPECT_THAT(AdamW().Bind({.parameters = {{"a", 0, {8}}, {"b", 4, {8}}}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("\"b\"")));
  EXPECT_THAT(AdamW().Bind({}, {.executor = {.threads = 2}}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("2 threads and no run function")));
  EXPECT_THAT(AdamW({}, {{.name = "g", .weight_decay = -1.0}}).Bind({}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("\"g\"")));
}

TEST(Optimizer, StateThatDoesNotFitIntoMemoryIsAnErrorThatNamesIt) {
  constexpr std::int64_t kHuge = std::int64_t{1} << 45;
  const ParameterLayout layout{.parameters = {{"huge", 0, {kHuge}}}, .owned = {{0, kHuge}}};
  EXPECT_THAT(AdamW().Bind(layout),
              StatusIs(StatusCode::kResourceExhausted, HasSubstr("optimizer state \"exp_avg\"")));
}

TEST(Optimizer, StateComesFromTheMemoryThatIsGiven) {
  auto memory = StatisticsResource::Create(HeapResource::Create());
  ASSERT_OK_AND_ASSIGN(const auto bound, AdamW().Bind(LayoutOf({1000}), {.memory = memory}));
  EXPECT_EQ(memory->statistics().current_bytes, bound->state_bytes());
}

TEST(Optimizer, DescribesEverythingThatRanksMustShare) {
  const auto nesterov = [](double rate) {
    return Sgd{{.learning_rate = rate, .momentum = 0.9, .momentum_form = Momentum::kNesterov}};
  };
  const std::vector<std::string> texts = {
      AdamW().Describe(),
      Adam().Describe(),
      Sgd().Describe(),
      AdamW{{.learning_rate = 3e-4}}.Describe(),
      AdamW{{.learning_rate = std::nextafter(3e-4, 1)}}.Describe(),
      AdamW{{.beta1 = 0.8}}.Describe(),
      AdamW{{.beta2 = 0.8}}.Describe(),
      AdamW{{.epsilon = 0}}.Describe(),
      AdamW{{.weight_decay = 0}}.Describe(),
      AdamW{{.variant = AdamVariant::kAmsgrad}}.Describe(),
      AdamW{{.state = StateFormat::kBlockwise8bit}}.Describe(),
      AdamW({}, {NoDecayForNormsAndBiases()}).Describe(),
      AdamW({}, {{.name = "no_decay", .max_dimensions = 1, .weight_decay = 0.5}}).Describe(),
      AdamW({}, {{.name = "no_decay", .min_dimensions = 1, .weight_decay = 0}}).Describe(),
      AdamW({}, {{.name = "a", .pattern = "a"}}).Describe(),
      AdamW({}, {{.name = "a", .pattern = "a", .learning_rate = 0}}).Describe(),
      Sgd{{.momentum = 0.9}}.Describe(),
      Sgd{{.momentum = 0.9, .dampening = 0.1}}.Describe(),
      Sgd{{.weight_decay = 0.1}}.Describe(),
      nesterov(1e-3).Describe(),
      nesterov(1e-2).Describe(),
  };
  EXPECT_EQ(std::set(texts.begin(), texts.end()).size(), texts.size());
  EXPECT_EQ(AdamW().Describe(), AdamW().Describe());
}

}  // namespace
}  // namespace ait

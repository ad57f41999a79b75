// SPDX-License-Identifier: Apache-2.0
// What holds for every optimizer that needs whole parameters.
#include "optim/whole_parameter_optimizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "ait/base/float16.h"
#include "ait/memory/heap.h"
#include "ait/memory/statistics.h"
#include "ait/optim/adafactor.h"
#include "ait/optim/lamb.h"
#include "ait/optim/muon.h"
#include "optim/optim_fixtures.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::kAllSimdLevels;
using ::ait::testing::RandomFloats;
using ::ait::testing::SameBits;
using ::ait::testing::StatusIs;
using ::ait::testing::ThreadsOf;
using ::testing::AllOf;
using ::testing::HasSubstr;

const ParameterGroups kGroups = {{.name = "slow", .pattern = "p3", .learning_rate = 1e-4},
                                 NoDecayForNormsAndBiases()};

ParameterLayout LayoutOfShapes(const std::vector<std::vector<std::int64_t>>& shapes) {
  ParameterLayout layout;
  std::int64_t end = 0;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    layout.parameters.push_back(
        {.name = StrCat("p", i), .begin = RoundUp(end, 64), .shape = shapes[i]});
    end = layout.parameters.back().range().end;
  }
  layout.owned = {{0, RoundUp(end, 64)}};
  return layout;
}

class WholeParameterContract : public ::testing::TestWithParam<std::shared_ptr<const Optimizer>> {
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

  static UpdateSlice SliceOf(Outcome& outcome, std::int64_t begin, std::int64_t end) {
    const auto offset = static_cast<std::size_t>(begin);
    const auto count = static_cast<std::size_t>(end - begin);
    return {.begin = begin,
            .parameters = View(std::span(outcome.parameters).subspan(offset, count)),
            .gradients = View(std::span(outcome.gradients).subspan(offset, count))};
  }

  static void AddState(BoundOptimizer& bound, Outcome& outcome) {
    for (const StateSlice& slice : bound.State()) {
      EXPECT_EQ(slice.begin, 0);
      outcome.state[StrCat(slice.parameter, "/", slice.state)] = {slice.floats().begin(),
                                                                  slice.floats().end()};
    }
  }

  // Three steps, each over the slices that `cuts` give.
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
    AddState(**bound, outcome);
    return outcome;
  }

  std::int64_t End(std::size_t i) const { return layout_.parameters[i].range().end; }

  ParameterLayout layout_ = LayoutOfShapes(
      {{64, 48}, {7}, {33, 140}, {140, 131}, {6, 5, 3, 3}, {}, {0, 4}, {9001}, {3, 2}});
};

INSTANTIATE_TEST_SUITE_P(
    All, WholeParameterContract,
    ::testing::Values(
        std::make_shared<Lamb>(LambOptions{}, kGroups),
        std::make_shared<Lamb>(LambOptions{.least_dimensions_adapted = 2}),
        std::make_shared<Adafactor>(AdafactorOptions{.weight_decay = 0.1}, kGroups),
        std::make_shared<Adafactor>(AdafactorOptions{.rule = AdafactorRule::kT5x, .beta1 = 0.9},
                                    kGroups),
        std::make_shared<Adafactor>(AdafactorOptions{.rule = AdafactorRule::kT5x,
                                                     .least_factored = 3}),
        std::make_shared<Muon>(MuonOptions{}, kGroups),
        std::make_shared<Muon>(MuonOptions{.higher_dimensions = HigherDimensions::kFlattened,
                                           .adamw_parameters = {"p2"}})),
    [](const auto& instance) { return StrCat(instance.param->name(), "_", instance.index); });

TEST_P(WholeParameterContract, AllSimdLevelsGiveTheSameBits) {
  const Outcome best = Run({});
  for (SimdLevel level : kAllSimdLevels) {
    EXPECT_EQ(Run({.max_simd_level = level}), best) << Name(level);
  }
}

TEST_P(WholeParameterContract, AnyNumberOfThreadsGivesTheSameBits) {
  const Outcome serial = Run({});
  EXPECT_EQ(Run({.executor = ThreadsOf(2)}), serial);
  EXPECT_EQ(Run({.executor = ThreadsOf(5)}), serial);
}

TEST_P(WholeParameterContract, AnySlicesOfWholeParametersGiveTheSameBits) {
  const Outcome whole = Run({});
  EXPECT_EQ(Run({}, {End(0), End(1) + 1, End(3), End(3), End(6)}), whole);
}

TEST_P(WholeParameterContract, ShardsTogetherGiveTheBitsOfTheWhole) {
  const Outcome whole = Run({});
  const ParameterLayout all = layout_;
  Outcome shards{.parameters = RandomFloats(size(), 1), .gradients = whole.gradients};
  const std::int64_t second = layout_.parameters[1].begin, fourth = layout_.parameters[3].begin;
  const std::vector<std::vector<ElementRange>> owners = {
      {{0, second}, {End(4), size()}}, {{fourth, End(4)}}, {}, {{second, fourth}}};
  for (const auto& owned : owners) {
    ParameterLayout layout = all;
    layout.owned = owned;
    ASSERT_OK_AND_ASSIGN(const auto bound, GetParam()->Bind(layout));
    for (unsigned step = 0; step < 3; ++step) {
      shards.gradients = RandomFloats(size(), 100 + step);
      ASSERT_OK(bound->BeginStep({.learning_rate_factor = 0.5, .gradient_scale = 0.25}));
      for (const ElementRange& range : owned) {
        ASSERT_OK(bound->Update(SliceOf(shards, range.begin, range.end)));
      }
    }
    AddState(*bound, shards);
  }
  EXPECT_EQ(shards, whole);
}

TEST_P(WholeParameterContract, TheOrderOfElementsInMemoryChangesNoBit) {
  const Outcome whole = Run({});
  // p4, [6, 5, 3, 3], as channels-last; p3 as the transpose of what it was.
  const auto place = [&](std::size_t p, std::int64_t i) {
    const ParameterSegment& segment = layout_.parameters[p];
    std::int64_t offset = segment.begin;
    for (std::size_t d = segment.shape.size(); d-- > 0;) {
      offset += i % segment.shape[d] * segment.strides[d];
      i /= segment.shape[d];
    }
    return static_cast<std::size_t>(offset);
  };
  layout_.parameters[3].strides = {1, 140};
  layout_.parameters[4].strides = {45, 1, 15, 5};
  const auto moved = [&](const std::vector<float>& from) {
    std::vector<float> to = from;
    for (const std::size_t p : {3, 4}) {
      const std::int64_t begin = layout_.parameters[p].begin;
      for (std::int64_t i = 0; i < layout_.parameters[p].size(); ++i)
        to[place(p, i)] = from[static_cast<std::size_t>(begin + i)];
    }
    return to;
  };
  Outcome outcome{.parameters = moved(RandomFloats(size(), 1))};
  ASSERT_OK_AND_ASSIGN(const auto bound, GetParam()->Bind(layout_));
  for (unsigned step = 0; step < 3; ++step) {
    outcome.gradients = moved(RandomFloats(size(), 100 + step));
    ASSERT_OK(bound->BeginStep({.learning_rate_factor = 0.5, .gradient_scale = 0.25}));
    ASSERT_OK(bound->Update(SliceOf(outcome, 0, size())));
  }
  EXPECT_TRUE(SameBits(outcome.parameters, moved(whole.parameters)));
}

TEST_P(WholeParameterContract, ZeroingChangesNothingButTheGradients) {
  const Outcome kept = Run({});
  Outcome zeroed = Run({}, {}, GradientsAfter::kZero);
  for (const ParameterSegment& parameter : layout_.parameters) {
    for (std::int64_t i = parameter.begin; i < parameter.range().end; ++i)
      ASSERT_EQ(zeroed.gradients[static_cast<std::size_t>(i)], 0) << parameter.name;
  }
  zeroed.gradients = kept.gradients;
  EXPECT_EQ(zeroed, kept);
}

TEST_P(WholeParameterContract, PaddingIsNeitherReadNorWritten) {
  const std::vector<float> expected = Run({}).parameters;
  std::vector<bool> is_padding(static_cast<std::size_t>(size()), true);
  for (const ParameterSegment& parameter : layout_.parameters)
    std::fill_n(is_padding.begin() + parameter.begin, parameter.size(), false);
  Outcome outcome{.parameters = RandomFloats(size(), 1)};
  ASSERT_OK_AND_ASSIGN(const auto bound, GetParam()->Bind(layout_));
  for (unsigned step = 0; step < 3; ++step) {
    outcome.gradients = RandomFloats(size(), 100 + step);
    for (std::size_t i = 0; i < is_padding.size(); ++i) {
      if (is_padding[i]) outcome.gradients[i] = outcome.parameters[i] = NAN;
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

TEST_P(WholeParameterContract, CopiesGetTheNewParameters) {
  Outcome outcome{.parameters = RandomFloats(size(), 1), .gradients = RandomFloats(size(), 2)};
  std::vector<float> first(static_cast<std::size_t>(size())), second = first;
  void* const copies[] = {first.data(), second.data()};
  ASSERT_OK_AND_ASSIGN(const auto bound, GetParam()->Bind(layout_));
  ASSERT_OK(bound->BeginStep({}));
  UpdateSlice slice = SliceOf(outcome, 0, size());
  slice.copies = copies;
  ASSERT_OK(bound->Update(slice));
  for (const ParameterSegment& parameter : layout_.parameters) {
    const auto begin = static_cast<std::size_t>(parameter.begin);
    const auto count = static_cast<std::size_t>(parameter.size());
    const auto part = std::span(outcome.parameters).subspan(begin, count);
    EXPECT_TRUE(SameBits(std::span(first).subspan(begin, count), part)) << parameter.name;
    EXPECT_TRUE(SameBits(std::span(second).subspan(begin, count), part)) << parameter.name;
  }
}

TEST_P(WholeParameterContract, StateContinuesWhereItWasSaved) {
  ASSERT_OK_AND_ASSIGN(const auto first, GetParam()->Bind(layout_));
  ASSERT_OK_AND_ASSIGN(const auto second, GetParam()->Bind(layout_));
  Outcome outcome{.parameters = RandomFloats(size(), 1), .gradients = RandomFloats(size(), 2)};
  ASSERT_OK(first->BeginStep({}));
  ASSERT_OK(first->Update(SliceOf(outcome, 0, size())));
  const auto saved = first->State();
  const auto loaded = second->State();
  const auto names = GetParam()->state_names();
  ASSERT_EQ(saved.size(), loaded.size());
  for (std::size_t i = 0; i < saved.size(); ++i) {
    EXPECT_EQ(saved[i].parameter, loaded[i].parameter);
    EXPECT_EQ(std::ranges::count(names, saved[i].state), 1) << saved[i].state;
    std::int64_t count = 1;
    for (const std::int64_t dimension : saved[i].shape) count *= dimension;
    if (saved[i].shape.empty()) {  // as the parameter
      count = std::ranges::find(layout_.parameters, saved[i].parameter, &ParameterSegment::name)
                  ->size();
    }
    EXPECT_EQ(static_cast<std::size_t>(count), saved[i].floats().size());
    std::ranges::copy(saved[i].floats(), loaded[i].floats().begin());
  }
  ASSERT_OK(second->set_step(first->step()));
  EXPECT_THAT(second->set_step(-1), StatusIs(StatusCode::kInvalidArgument, HasSubstr("-1")));
  EXPECT_EQ(second->step(), 1);
  Outcome other = outcome;
  for (auto& [bound, numbers] : {std::pair(&first, &outcome), std::pair(&second, &other)}) {
    ASSERT_OK((*bound)->BeginStep({}));
    ASSERT_OK((*bound)->Update(SliceOf(*numbers, 0, size())));
  }
  EXPECT_EQ(outcome, other);
}

TEST_P(WholeParameterContract, StateComesFromTheMemoryThatIsGiven) {
  auto memory = StatisticsResource::Create(HeapResource::Create());
  ASSERT_OK_AND_ASSIGN(const auto bound, GetParam()->Bind(layout_, {.memory = memory}));
  EXPECT_EQ(memory->statistics().current_bytes, bound->state_bytes());
  EXPECT_GT(bound->state_bytes(), 0);
  EXPECT_EQ(bound->master_bytes(), 0);
}

TEST_P(WholeParameterContract, ParametersAreSetAndGot) {
  ASSERT_OK_AND_ASSIGN(const auto bound, GetParam()->Bind(layout_));
  Outcome outcome{.parameters = RandomFloats(size(), 1), .gradients = RandomFloats(size(), 2)};
  const ParameterSegment& p = layout_.parameters[2];
  const std::vector<float> values = RandomFloats(p.size(), 9);
  std::vector<float> copy(values.size()), got(values.size());
  void* const copies[] = {copy.data()};
  UpdateSlice slice = SliceOf(outcome, p.begin, p.range().end);
  slice.copies = copies;
  ASSERT_OK(bound->SetParameters(slice, values));
  ASSERT_OK(bound->GetParameters(slice, got));
  EXPECT_TRUE(SameBits(got, values));
  EXPECT_TRUE(SameBits(copy, values));
  EXPECT_THAT(bound->GetParameters(slice, std::span(got).first(3)),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("3 values")));
}

TEST_P(WholeParameterContract, ParametersBelowFp32WithMastersTakeTheStepsOfFp32) {
  const Outcome expected = Run({});
  layout_.parameters[3].strides = {131, 1};  // row-major, said twice
  for (const Masters masters : {Masters::kFloat32, Masters::kRemainder}) {
    ASSERT_OK_AND_ASSIGN(
        const auto bound,
        GetParam()->Bind(layout_, {.parameter_dtype = DType::kBFloat16, .masters = masters}));
    std::vector<BFloat16> parameters(static_cast<std::size_t>(size()));
    std::vector<float> values = RandomFloats(size(), 1);
    std::vector<float> gradients(values.size());
    const auto slice = [&] {
      return UpdateSlice{.begin = 0, .parameters = View(parameters), .gradients = View(gradients)};
    };
    ASSERT_OK(bound->SetParameters(slice(), values));
    for (unsigned step = 0; step < 3; ++step) {
      gradients = RandomFloats(size(), 100 + step);
      ASSERT_OK(bound->BeginStep({.learning_rate_factor = 0.5, .gradient_scale = 0.25}));
      ASSERT_OK(bound->Update(slice()));
    }
    ASSERT_OK(bound->GetParameters(slice(), values));
    for (const ParameterSegment& p : layout_.parameters) {
      const auto begin = static_cast<std::size_t>(p.begin),
                 count = static_cast<std::size_t>(p.size());
      EXPECT_TRUE(SameBits(std::span(values).subspan(begin, count),
                           std::span(expected.parameters).subspan(begin, count)))
          << p.name << " " << Name(masters);
      for (std::size_t i = begin; i < begin + count; ++i) {
        ASSERT_NEAR(static_cast<float>(parameters[i]), values[i], std::abs(values[i]) / 256)
            << p.name;
      }
    }
    EXPECT_GE(bound->master_bytes(), size() * (masters == Masters::kFloat32 ? 4 : 2));
  }
}

TEST_P(WholeParameterContract, GradientsBelowFp32AreRead) {
  Outcome outcome{.parameters = RandomFloats(size(), 1), .gradients = RandomFloats(size(), 2)};
  std::vector<BFloat16> halves;
  for (float& gradient : outcome.gradients) {
    halves.push_back(BFloat16(gradient));
    gradient = static_cast<float>(halves.back());
  }
  Outcome other = outcome;
  ASSERT_OK_AND_ASSIGN(const auto first, GetParam()->Bind(layout_));
  ASSERT_OK_AND_ASSIGN(const auto second, GetParam()->Bind(layout_));
  ASSERT_OK(first->BeginStep({}));
  ASSERT_OK(first->Update(SliceOf(outcome, 0, size())));
  ASSERT_OK(second->BeginStep({.gradients_after = GradientsAfter::kZero}));
  UpdateSlice slice = SliceOf(other, 0, size());
  slice.gradients = View(halves);
  ASSERT_OK(second->Update(slice));
  EXPECT_TRUE(SameBits(other.parameters, outcome.parameters));
  EXPECT_EQ(halves[3].bits, 0);
}

TEST_P(WholeParameterContract, GradientsAreScaledByGroupAndCutByValueFirst) {
  const std::size_t groups = GetParam()->groups().size() + 1;
  const float limit = 0.3f;
  Outcome outcome{.parameters = RandomFloats(size(), 1), .gradients = RandomFloats(size(), 2)};
  Outcome other = outcome;
  for (const ParameterSegment& p : layout_.parameters) {
    const auto group = GroupOf(GetParam()->groups(), p).value_or(static_cast<int>(groups) - 1);
    for (std::int64_t i = p.begin; i < p.range().end; ++i) {
      float& gradient = other.gradients[static_cast<std::size_t>(i)];
      gradient = std::clamp(gradient * 0.25f / static_cast<float>(1 << group), -limit, limit);
    }
  }
  std::vector<double> scales;
  for (std::size_t group = 0; group < groups; ++group) scales.push_back(1.0 / (1 << group));
  ASSERT_OK_AND_ASSIGN(const auto first, GetParam()->Bind(layout_));
  ASSERT_OK_AND_ASSIGN(const auto second, GetParam()->Bind(layout_));
  ASSERT_OK(first->BeginStep(
      {.gradient_scale = 0.25, .group_scales = scales, .clip_value = double{limit}}));
  ASSERT_OK(first->Update(SliceOf(outcome, 0, size())));
  ASSERT_OK(second->BeginStep({}));
  ASSERT_OK(second->Update(SliceOf(other, 0, size())));
  EXPECT_TRUE(SameBits(outcome.parameters, other.parameters));
}

TEST_P(WholeParameterContract, ALayoutThatCutsAParameterIsRefusedByName) {
  layout_.owned = {{0, 100}};
  EXPECT_THAT(
      GetParam()->Bind(layout_),
      StatusIs(StatusCode::kInvalidArgument, AllOf(HasSubstr("\"p0\""), HasSubstr("of which 100"),
                                                   HasSubstr("needs whole parameters"))));
  EXPECT_EQ(GetParam()->ownership(), Ownership::kWholeParameters);
}

TEST_P(WholeParameterContract, ASliceThatCutsAMatrixOrIsNotOwnedIsRefusedAndChangesNothing) {
  layout_.owned = {{0, End(3)}};
  ASSERT_OK_AND_ASSIGN(const auto bound, GetParam()->Bind(layout_));
  Outcome outcome{.parameters = RandomFloats(1 << 16, 1), .gradients = RandomFloats(1 << 16, 2)};
  const Outcome before = outcome;
  EXPECT_THAT(bound->Update(SliceOf(outcome, 0, End(3))),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("BeginStep")));
  ASSERT_OK(bound->BeginStep({}));
  EXPECT_THAT(bound->Update(SliceOf(outcome, 0, 100)),
              StatusIs(StatusCode::kInvalidArgument,
                       AllOf(HasSubstr("[0, 100)"), HasSubstr("cuts parameter \"p0\""))));
  EXPECT_THAT(bound->Update(SliceOf(outcome, 0, End(3) + 1)),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("not inside")));
  UpdateSlice uneven = SliceOf(outcome, 0, End(0));
  uneven.gradients.count -= 1;
  EXPECT_THAT(bound->Update(uneven),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("3072 parameters and 3071")));
  EXPECT_EQ(outcome, before);
  EXPECT_OK(bound->Update(SliceOf(outcome, 0, End(3))));
}

TEST_P(WholeParameterContract, ARankThatOwnsNothingTakesPart) {
  layout_.owned = {};
  ASSERT_OK_AND_ASSIGN(const auto bound, GetParam()->Bind(layout_));
  ASSERT_OK(bound->BeginStep({}));
  EXPECT_OK(bound->Update({}));
  EXPECT_THAT(bound->State(), ::testing::IsEmpty());
  EXPECT_EQ(bound->state_bytes(), 0);
  EXPECT_EQ(bound->step(), 1);
}

TEST_P(WholeParameterContract, NumbersOfAStepMustBeFinite) {
  ASSERT_OK_AND_ASSIGN(const auto bound, GetParam()->Bind(layout_));
  EXPECT_THAT(bound->BeginStep({.gradient_scale = 1e300}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("gradient_scale is 1e+300")));
  EXPECT_THAT(bound->BeginStep({.learning_rate_factor = NAN}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("learning_rate_factor is nan")));
  EXPECT_EQ(bound->step(), 0) << "a refused step is not counted";
}

TEST(WholeParameterOptimizer, DescribesEverythingThatRanksMustShare) {
  const std::vector<std::string> texts = {
      Lamb().Describe(),
      Lamb{{.least_norm = 1}}.Describe(),
      Lamb{{.largest_trust = 1}}.Describe(),
      Lamb{{.least_dimensions_adapted = 2}}.Describe(),
      Lamb{{.not_adapted = {"a"}}}.Describe(),
      Lamb{{.not_adapted = {"a", "b"}}}.Describe(),
      Adafactor().Describe(),
      Adafactor{{.rule = AdafactorRule::kT5x}}.Describe(),
      Adafactor{{.epsilon1 = 1e-30}}.Describe(),
      Adafactor{{.rule = AdafactorRule::kT5x, .step = StepSize::kAbsolute}}.Describe(),
      Adafactor{{.least_factored = 2}}.Describe(),
      Muon().Describe(),
      Muon{{.momentum_form = Momentum::kClassical}}.Describe(),
      Muon{{.adjustment = Adjustment::kMatchAdamW}}.Describe(),
      Muon{{.higher_dimensions = HigherDimensions::kFlattened}}.Describe(),
      Muon{{.adamw_parameters = {"a"}}}.Describe(),
      Muon{{.adamw = {.beta1 = 0.8}}}.Describe(),
      Muon({}, {NoDecayForNormsAndBiases()}).Describe(),
  };
  EXPECT_EQ(std::set(texts.begin(), texts.end()).size(), texts.size());
}

}  // namespace
}  // namespace ait

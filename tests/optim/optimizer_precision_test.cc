// SPDX-License-Identifier: Apache-2.0

// What every optimizer promises of parameters and gradients below fp32, and of copies.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>

#include "ait/base/float16.h"
#include "ait/optim/adam.h"
#include "ait/optim/lion.h"
#include "ait/optim/optimizer.h"
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
using ::testing::HasSubstr;

using Bytes8 = std::vector<std::byte>;

Bytes8 Narrow(const std::vector<float>& values, DType dtype) {
  Bytes8 bytes(values.size() * static_cast<std::size_t>(SizeOf(dtype)));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint16_t half =
        dtype == DType::kBFloat16 ? BFloat16(values[i]).bits : Float16(values[i]).bits;
    if (dtype == DType::kFloat32) std::memcpy(bytes.data() + 4 * i, &values[i], 4);
    if (dtype != DType::kFloat32) std::memcpy(bytes.data() + 2 * i, &half, 2);
  }
  return bytes;
}

// How parameters and gradients are kept.
struct Storage {
  DType parameters = DType::kFloat32;
  Masters masters = Masters::kFloat32;
  DType gradients = DType::kFloat32;
  std::string name() const {
    return StrCat(Name(parameters), "_", Name(masters), "_", Name(gradients));
  }
};

std::vector<Storage> AllStorages() {
  std::vector<Storage> all;
  for (DType gradients : {DType::kFloat32, DType::kBFloat16, DType::kFloat16}) {
    all.push_back({DType::kFloat32, Masters::kFloat32, gradients});
    for (Masters masters : {Masters::kFloat32, Masters::kRemainder, Masters::kKahan,
                            Masters::kStochastic, Masters::kNone}) {
      all.push_back({DType::kBFloat16, masters, gradients});
    }
    all.push_back({DType::kFloat16, Masters::kFloat32, gradients});
    all.push_back({DType::kFloat16, Masters::kNone, gradients});
  }
  return all;
}

class OptimizerPrecision : public ::testing::TestWithParam<std::shared_ptr<const Optimizer>> {
 protected:
  struct Outcome {
    Bytes8 parameters;
    Bytes8 gradients;
    std::vector<float> exact;  // as GetParameters has them
    std::map<std::string, Bytes8> state;
    bool operator==(const Outcome&) const = default;
  };

  OptimizerPrecision() {
    std::int64_t element = 1000;
    for (ParameterSegment& parameter : layout_.parameters) {
      parameter.model_element = element;
      element += parameter.size();
    }
  }

  std::int64_t size() const { return layout_.owned.back().end; }

  static UpdateSlice SliceOf(Outcome& outcome, const Storage& storage, std::int64_t begin,
                             std::int64_t end) {
    const Buffer parameters{
        outcome.parameters.data(),
        static_cast<std::int64_t>(outcome.parameters.size()) / SizeOf(storage.parameters),
        storage.parameters};
    const Buffer gradients{outcome.gradients.data(), parameters.count, storage.gradients};
    return {.begin = begin,
            .parameters = parameters.Slice(begin, end - begin),
            .gradients = gradients.Slice(begin, end - begin)};
  }

  // Four steps from the same fp32 numbers, over owners that each own some ranges.
  Outcome Run(const Storage& storage, BindOptions options = {},
              std::vector<std::vector<ElementRange>> owners = {},
              GradientsAfter after = GradientsAfter::kKept) {
    options.parameter_dtype = storage.parameters;
    options.masters = storage.masters;
    options.seed = 11;
    if (owners.empty()) owners = {layout_.owned};
    Outcome outcome{.parameters = Narrow(std::vector<float>(size()), storage.parameters),
                    .exact = std::vector<float>(size())};
    const std::vector<float> start = RandomFloats(size(), 1);
    for (const std::vector<ElementRange>& owned : owners) {
      ParameterLayout layout = layout_;
      layout.owned = owned;
      auto bound = GetParam()->Bind(layout, options);
      EXPECT_OK(bound);
      for (const ElementRange& r : owned) {
        outcome.gradients = Narrow(start, storage.gradients);
        EXPECT_OK((*bound)->SetParameters(
            SliceOf(outcome, storage, r.begin, r.end),
            std::span(start).subspan(r.begin, static_cast<std::size_t>(r.size()))));
      }
      for (unsigned step = 0; step < 4; ++step) {
        Bytes8 gradients = Narrow(RandomFloats(size(), 100 + step), storage.gradients);
        std::swap(outcome.gradients, gradients);
        EXPECT_OK((*bound)->BeginStep(
            {.learning_rate_factor = 0.5, .gradient_scale = 0.25, .gradients_after = after}));
        for (const ElementRange& r : owned) {
          EXPECT_OK((*bound)->Update(SliceOf(outcome, storage, r.begin, r.end)));
        }
      }
      for (const ElementRange& r : owned) {
        EXPECT_OK((*bound)->GetParameters(
            SliceOf(outcome, storage, r.begin, r.end),
            std::span(outcome.exact).subspan(r.begin, static_cast<std::size_t>(r.size()))));
      }
      for (const StateSlice& slice : (*bound)->State()) {
        auto& bytes = outcome.state[StrCat(slice.parameter, "/", slice.state)];
        const std::size_t begin = slice.begin * SizeOf(slice.dtype);
        bytes.resize(std::max(bytes.size(), begin + slice.bytes.size()));
        std::ranges::copy(slice.bytes, bytes.begin() + static_cast<std::ptrdiff_t>(begin));
      }
    }
    return outcome;
  }

  ParameterLayout layout_ = LayoutOf({1, 63, 64, 0, 130, 5000, 20'001});
};

INSTANTIATE_TEST_SUITE_P(
    All, OptimizerPrecision,
    ::testing::Values(std::make_shared<AdamW>(AdamWOptions{.learning_rate = 1e-2},
                                              ParameterGroups{NoDecayForNormsAndBiases()}),
                      std::make_shared<Lion>(LionOptions{.learning_rate = 1e-2}),
                      std::make_shared<Sgd>(SgdOptions{.learning_rate = 1e-2}),
                      std::make_shared<Sgd>(SgdOptions{.learning_rate = 1e-2, .momentum = 0.9})),
    [](const auto& instance) { return StrCat(instance.param->name(), "_", instance.index); });

TEST_P(OptimizerPrecision, SimdLevelsThreadsAndShardsGiveTheSameBits) {
  for (const Storage& storage : AllStorages()) {
    SCOPED_TRACE(storage.name());
    const Outcome whole = Run(storage);
    for (SimdLevel level : kAllSimdLevels) {
      EXPECT_TRUE(Run(storage, {.max_simd_level = level}) == whole) << Name(level);
    }
    EXPECT_TRUE(Run(storage, {.executor = ThreadsOf(3)}) == whole);
    EXPECT_TRUE(Run(storage, {},
                    {{{0, 96}, {192, 300}, {5000, 10'001}},
                     {{96, 192}, {300, 5000}},
                     {},
                     {{10'001, size()}}}) == whole);
  }
}

TEST_P(OptimizerPrecision, MastersTakeTheStepsOfFp32) {
  const Outcome fp32 = Run({});
  for (DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const Outcome masters = Run({.parameters = dtype});
    EXPECT_TRUE(SameBits(masters.exact, fp32.exact)) << Name(dtype);
    for (const auto& [name, bytes] : fp32.state) EXPECT_EQ(masters.state.at(name), bytes) << name;
  }
}

TEST_P(OptimizerPrecision, ARemainderGivesTheBitsOfAMaster) {
  for (DType gradients : {DType::kFloat32, DType::kBFloat16}) {
    const Outcome master = Run({DType::kBFloat16, Masters::kFloat32, gradients});
    const Outcome remainder = Run({DType::kBFloat16, Masters::kRemainder, gradients});
    EXPECT_EQ(remainder.parameters, master.parameters);
    EXPECT_TRUE(SameBits(remainder.exact, master.exact));
  }
}

TEST_P(OptimizerPrecision, AGradientBelowFp32IsItsNumberInFp32) {
  // Run rounds the same numbers for both; here once more to fp32.
  for (DType dtype : {DType::kBFloat16, DType::kFloat16}) {
    const ParameterLayout layout = LayoutOf({3000});
    const std::vector<float> start = RandomFloats(size(), 1);
    std::vector<float> narrow_run = start, wide_run = start;
    ASSERT_OK_AND_ASSIGN(const auto a, GetParam()->Bind(layout));
    ASSERT_OK_AND_ASSIGN(const auto b, GetParam()->Bind(layout));
    std::vector<float> wide = RandomFloats(3000, 2);
    Bytes8 narrow = Narrow(wide, dtype);
    for (float& x : wide) {
      x = dtype == DType::kBFloat16 ? static_cast<float>(BFloat16(x))
                                    : static_cast<float>(Float16(x));
    }
    ASSERT_OK(a->BeginStep({.gradients_after = GradientsAfter::kZero}));
    ASSERT_OK(b->BeginStep({}));
    ASSERT_OK(a->Update({.parameters = Buffer{narrow_run.data(), 3000, DType::kFloat32},
                         .gradients = Buffer{narrow.data(), 3000, dtype}}));
    ASSERT_OK(b->Update(
        {.parameters = Buffer{wide_run.data(), 3000, DType::kFloat32}, .gradients = View(wide)}));
    EXPECT_TRUE(SameBits(narrow_run, wide_run)) << Name(dtype);
    EXPECT_EQ(narrow, Bytes8(narrow.size())) << "zero afterwards";
  }
}

TEST_P(OptimizerPrecision, ZeroingChangesNothingButTheGradients) {
  for (const Storage& storage : AllStorages()) {
    const Outcome kept = Run(storage);
    Outcome zeroed = Run(storage, {}, {}, GradientsAfter::kZero);
    const auto width = static_cast<std::size_t>(SizeOf(storage.gradients));
    for (const ParameterSegment& p : layout_.parameters) {
      const auto* begin = zeroed.gradients.data() + p.begin * width;
      EXPECT_TRUE(std::all_of(begin, begin + p.size() * width,
                              [](std::byte b) { return b == std::byte{0}; }));
    }
    zeroed.gradients = kept.gradients;
    EXPECT_TRUE(zeroed == kept) << storage.name();
  }
}

TEST_P(OptimizerPrecision, EveryCopyGetsTheNewParameters) {
  for (const Storage& storage : AllStorages()) {
    const ParameterLayout layout = LayoutOf({5000});
    ASSERT_OK_AND_ASSIGN(const auto bound,
                         GetParam()->Bind(layout, {.executor = ThreadsOf(2),
                                                   .parameter_dtype = storage.parameters,
                                                   .masters = storage.masters}));
    const std::vector<float> start = RandomFloats(5000, 1);
    Outcome outcome{.parameters = Narrow(std::vector<float>(5000), storage.parameters),
                    .gradients = Narrow(RandomFloats(5000, 2), storage.gradients)};
    Bytes8 one = outcome.parameters, two = outcome.parameters;
    void* const copies[] = {one.data(), two.data()};
    UpdateSlice slice = SliceOf(outcome, storage, 0, 5000);
    slice.copies = copies;
    ASSERT_OK(bound->SetParameters(slice, start));
    EXPECT_EQ(one, outcome.parameters);
    EXPECT_EQ(two, outcome.parameters);
    const Bytes8 before = one;
    ASSERT_OK(bound->BeginStep({}));
    ASSERT_OK(bound->Update(slice));
    EXPECT_NE(outcome.parameters, before);
    EXPECT_EQ(one, outcome.parameters);
    EXPECT_EQ(two, outcome.parameters);
  }
}

TEST_P(OptimizerPrecision, WhatIsSetIsRead) {
  const ParameterLayout layout = LayoutOf({5000});
  const std::vector<float> values = RandomFloats(5000, 1);
  for (const Storage& storage : AllStorages()) {
    ASSERT_OK_AND_ASSIGN(const auto bound,
                         GetParam()->Bind(layout, {.parameter_dtype = storage.parameters,
                                                   .masters = storage.masters}));
    Outcome outcome{.parameters = Narrow(std::vector<float>(5000), storage.parameters),
                    .gradients = Narrow(std::vector<float>(5000), storage.gradients)};
    const UpdateSlice slice = SliceOf(outcome, storage, 0, 5000);
    std::vector<float> read(5000);
    ASSERT_OK(bound->SetParameters(slice, values));
    ASSERT_OK(bound->GetParameters(slice, read));
    const bool exact = storage.parameters == DType::kFloat32 ||
                       storage.masters == Masters::kFloat32 ||
                       storage.masters == Masters::kRemainder;
    EXPECT_EQ(SameBits(read, values), exact) << storage.name();
    ASSERT_OK(bound->SetParameters(slice, read));
    std::vector<float> again(5000);
    ASSERT_OK(bound->GetParameters(slice, again));
    EXPECT_TRUE(SameBits(again, read)) << storage.name();
    EXPECT_THAT(bound->SetParameters(slice, std::span(values).first(9)),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr("9 values")));
  }
}

TEST_P(OptimizerPrecision, MastersAreStateWithTheirOwnNameAndDType) {
  const ParameterLayout layout = LayoutOf({640});
  struct Case {
    Masters masters;
    std::string name;
    DType dtype;
    std::int64_t bytes;
  };
  const auto own = static_cast<std::int64_t>(GetParam()->state_names().size());
  for (const Case& c : {Case{Masters::kFloat32, "master", DType::kFloat32, 4},
                        Case{Masters::kRemainder, "remainder", DType::kUInt16, 2},
                        Case{Masters::kKahan, "compensation", DType::kBFloat16, 2},
                        Case{Masters::kStochastic, "", DType::kFloat32, 0},
                        Case{Masters::kNone, "", DType::kFloat32, 0}}) {
    ASSERT_OK_AND_ASSIGN(
        const auto bound,
        GetParam()->Bind(layout, {.parameter_dtype = DType::kBFloat16, .masters = c.masters}));
    EXPECT_EQ(bound->master_bytes(), c.bytes * 640);
    EXPECT_EQ(bound->state_bytes(), (own * 4 + c.bytes) * 640);
    const auto state = bound->State();
    ASSERT_EQ(static_cast<std::int64_t>(state.size()), own + (c.bytes > 0));
    if (c.bytes == 0) continue;
    EXPECT_EQ(state.back().state, c.name);
    EXPECT_EQ(state.back().dtype, c.dtype);
    EXPECT_EQ(static_cast<std::int64_t>(state.back().bytes.size()), c.bytes * 640);
  }
  ASSERT_OK_AND_ASSIGN(const auto fp32, GetParam()->Bind(layout));
  EXPECT_EQ(fp32->master_bytes(), 0);
}

TEST_P(OptimizerPrecision, BuffersOfAnotherDTypeAreRefused) {
  const ParameterLayout layout = LayoutOf({64});
  ASSERT_OK_AND_ASSIGN(const auto bound,
                       GetParam()->Bind(layout, {.parameter_dtype = DType::kBFloat16}));
  std::vector<float> floats(64);
  std::vector<std::int64_t> integers(64);
  std::vector<BFloat16> halves(64);
  ASSERT_OK(bound->BeginStep({}));
  EXPECT_THAT(bound->Update({.parameters = View(floats), .gradients = View(floats)}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("bound to bfloat16")));
  EXPECT_THAT(bound->Update({.parameters = View(halves), .gradients = View(integers)}),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("gradients are int64")));
  EXPECT_OK(bound->Update({.parameters = View(halves), .gradients = View(floats)}));
}

}  // namespace
}  // namespace ait

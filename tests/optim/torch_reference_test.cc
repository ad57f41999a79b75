// SPDX-License-Identifier: Apache-2.0
// Every optimizer that Python's torch.optim has too, against the numbers that it gave
// (reference/torch_reference.py).
//
// Each step starts from torch's parameters and states. The rule: what a step adds to a parameter
// differs from what torch added by at most one unit in the last place (ulp), of that difference or
// of the parameter, whichever is larger; and a state by at most four ulp of the largest of its
// array, since torch's vector kernels use fused multiply-add.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "ait/optim/adafactor.h"
#include "ait/optim/adam.h"
#include "ait/optim/sgd.h"
#include "optim/optim_fixtures.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using nlohmann::json;

double Ulp(double value) {
  const float x = std::abs(static_cast<float>(value));
  return static_cast<double>(std::nextafter(x, INFINITY)) - static_cast<double>(x);
}

std::vector<float> Floats(const json& list) {
  std::vector<float> values;
  for (const json& value : list) values.push_back(static_cast<float>(value.get<double>()));
  return values;
}

class Reference {
 public:
  static const json& Document() {
    static const json document = json::parse(std::ifstream(AIT_TORCH_REFERENCE));
    return document;
  }

  explicit Reference(const std::string& name) : case_(Document().at("cases").at(name)) {
    std::int64_t end = 0;
    for (const auto& [parameter, shape] : Document().at("shapes").items()) {
      layout_.parameters.push_back({.name = parameter,
                                    .begin = RoundUp(end, 64),
                                    .shape = shape.get<std::vector<std::int64_t>>()});
      end = layout_.parameters.back().range().end;
    }
    layout_.owned = {{0, RoundUp(end, 64)}};
  }

  double option(const char* name) const { return case_.at("options").at(name).get<double>(); }

  void Compare(const Optimizer& optimizer) {
    ASSERT_OK_AND_ASSIGN(const auto bound, optimizer.Bind(layout_));
    const json* parameters_before = &case_.at("initial");
    const json* state_before = nullptr;
    std::int64_t t = 0;
    for (const json& step : case_.at("steps")) {
      const std::vector<float> before = Flat(*parameters_before);
      std::vector<float> after = before;
      std::vector<float> gradients = Flat(step.at("gradients"));
      for (const StateSlice& slice : bound->State()) {
        if (state_before == nullptr) continue;
        std::ranges::copy(StateOf(*state_before, slice), slice.floats().begin());
      }
      ASSERT_OK(bound->set_step(t));
      ASSERT_OK(
          bound->BeginStep({.learning_rate_factor = case_.at("factors").at(t).get<double>()}));
      ASSERT_OK(
          bound->Update({.begin = 0, .parameters = View(after), .gradients = View(gradients)}));
      ++t;
      const std::vector<float> expected = Flat(step.at("parameters"));
      for (const ParameterSegment& parameter : layout_.parameters) {
        for (auto i = static_cast<std::size_t>(parameter.begin);
             i < static_cast<std::size_t>(parameter.range().end); ++i) {
          const double ours = static_cast<double>(after[i]) - static_cast<double>(before[i]);
          const double theirs = static_cast<double>(expected[i]) - static_cast<double>(before[i]);
          const double allowed = std::max({Ulp(theirs), Ulp(before[i]), Ulp(expected[i])});
          EXPECT_LE(std::abs(ours - theirs), allowed)
              << parameter.name << " element " << i << " step " << t << ": added " << ours
              << ", torch " << theirs;
        }
      }
      std::size_t arrays = 0;
      for (const StateSlice& slice : bound->State()) {
        const std::vector<float> values = StateOf(step.at("state"), slice);
        ASSERT_EQ(values.size(), slice.floats().size()) << slice.parameter << " " << slice.state;
        float largest = 0;
        for (const float value : values) largest = std::max(largest, std::abs(value));
        for (std::size_t i = 0; i < values.size(); ++i) {
          EXPECT_NEAR(slice.floats()[i], values[i], 4 * Ulp(largest))
              << slice.parameter << " " << slice.state << " " << i << " step " << t;
        }
        ++arrays;
      }
      std::size_t expected_arrays = 0;
      for (const auto& [name, arrays_of] : step.at("state").items())
        expected_arrays += arrays_of.size();
      EXPECT_EQ(arrays, expected_arrays);
      parameters_before = &step.at("parameters");
      state_before = &step.at("state");
    }
    EXPECT_EQ(t, 4);
  }

 private:
  std::vector<float> Flat(const json& by_name) const {
    std::vector<float> flat(static_cast<std::size_t>(layout_.owned[0].end), 0.0f);
    for (const ParameterSegment& parameter : layout_.parameters)
      std::ranges::copy(Floats(by_name.at(parameter.name)), flat.begin() + parameter.begin);
    return flat;
  }

  static std::vector<float> StateOf(const json& state, const StateSlice& slice) {
    return Floats(state.at(std::string(slice.parameter)).at(std::string(slice.state)));
  }

  const json& case_;
  ParameterLayout layout_;
};

TEST(TorchReference, AdamW) {
  Reference("adamw").Compare(AdamW{{.learning_rate = 3e-3, .beta2 = 0.95, .weight_decay = 0.1}});
}

TEST(TorchReference, Adam) {
  Reference("adam").Compare(Adam{{.learning_rate = 3e-3, .weight_decay = 0.1}});
}

TEST(TorchReference, AmsGrad) {
  Reference("adam_amsgrad")
      .Compare(Adam{{.learning_rate = 3e-3, .variant = AdamVariant::kAmsgrad}});
  Reference("adamw_amsgrad")
      .Compare(
          AdamW{{.learning_rate = 3e-3, .weight_decay = 0.1, .variant = AdamVariant::kAmsgrad}});
}

TEST(TorchReference, Sgd) {
  Reference("sgd").Compare(Sgd{{.learning_rate = 0.03, .weight_decay = 0.01}});
}

TEST(TorchReference, SgdWithMomentum) {
  Reference("sgd_momentum")
      .Compare(Sgd{{.learning_rate = 0.03, .momentum = 0.9, .weight_decay = 0.01}});
}

TEST(TorchReference, SgdWithDampening) {
  Reference("sgd_dampening")
      .Compare(Sgd{{.learning_rate = 0.03, .momentum = 0.9, .dampening = 0.3}});
}

TEST(TorchReference, SgdWithNesterovMomentum) {
  Reference("sgd_nesterov")
      .Compare(Sgd{{.learning_rate = 0.03,
                    .momentum = 0.9,
                    .weight_decay = 0.01,
                    .momentum_form = Momentum::kNesterov}});
}

TEST(TorchReference, Adafactor) {
  const Adafactor ours;
  Reference reference("adafactor");
  EXPECT_EQ(ours.learning_rate(), reference.option("lr"));
  reference.Compare(ours);
}

TEST(TorchReference, AdafactorWithEveryOption) {
  Reference("adafactor_options")
      .Compare(Adafactor{{.learning_rate = 0.05,
                          .beta2_decay = -0.6,
                          .epsilon1 = 1e-4,
                          .epsilon2 = 1e-2,
                          .clipping_threshold = 1.5,
                          .weight_decay = 0.02}});
}

}  // namespace
}  // namespace ait

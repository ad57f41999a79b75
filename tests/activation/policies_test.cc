// SPDX-License-Identifier: Apache-2.0
#include "ait/activation/policies.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ait/activation/compression.h"
#include "ait/activation/keep.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::StatusIs;

constexpr auto kKeep = SegmentAction::kKeep;
constexpr auto kRecompute = SegmentAction::kRecompute;
constexpr auto kOffload = SegmentAction::kOffload;

const std::vector<std::string>& Names() {
  static const auto* const names =
      new std::vector<std::string>{"embeddings", "blocks.0", "blocks.1", "blocks.2", "head"};
  return *names;
}

std::vector<SegmentAction> Actions(const CheckpointPolicy& policy) {
  return policy.ActionsFor(Names()).value();
}

TEST(CheckpointPolicy, NamedOnes) {
  EXPECT_THAT(Actions(CheckpointPolicy::None()), ElementsAre(kKeep, kKeep, kKeep, kKeep, kKeep));
  EXPECT_THAT(Actions(CheckpointPolicy::All()),
              ElementsAre(kRecompute, kRecompute, kRecompute, kRecompute, kRecompute));
  EXPECT_THAT(Actions(CheckpointPolicy::EveryKth(2)),
              ElementsAre(kRecompute, kKeep, kRecompute, kKeep, kRecompute));
  EXPECT_THAT(Actions(CheckpointPolicy::Matching("blocks.*")),
              ElementsAre(kKeep, kRecompute, kRecompute, kRecompute, kKeep));
}

TEST(CheckpointPolicy, TheLastRuleThatMatchesCounts) {
  CheckpointPolicy policy;
  policy.Add({.pattern = "blocks.?"})
      .Add({.pattern = "blocks.*", .action = kOffload, .every = 2})
      .Add({.pattern = "blocks.2", .action = kKeep});
  EXPECT_THAT(Actions(policy), ElementsAre(kKeep, kOffload, kRecompute, kKeep, kKeep));
}

TEST(CheckpointPolicy, FromText) {
  const auto parsed = [](std::string_view text) {
    return Actions(CheckpointPolicy::Parse(text).value());
  };
  EXPECT_EQ(parsed("all"), Actions(CheckpointPolicy::All()));
  EXPECT_EQ(parsed("none"), Actions(CheckpointPolicy::None()));
  EXPECT_EQ(parsed("*/2=recompute"), Actions(CheckpointPolicy::EveryKth(2)));
  EXPECT_THAT(parsed("blocks.*=recompute,blocks.*/2=offload,blocks.2=keep"),
              ElementsAre(kKeep, kOffload, kRecompute, kKeep, kKeep));
  ASSERT_OK_AND_ASSIGN(const auto keeps, CheckpointPolicy::Parse("all,+products,+products"));
  EXPECT_EQ(keeps.kept_results(), MatrixProducts());
}

TEST(CheckpointPolicy, TextThatIsNone) {
  for (const auto& [text, part] : std::vector<std::pair<std::string, std::string>>{
           {"", "\"\" is no rule"},
           {"some", "\"some\" is no rule"},
           {"=keep", "\"=keep\" is no rule"},
           {"blocks.*=forget", "no action \"forget\""},
           {"blocks.*/0=keep", "\"0\" in \"blocks.*/0=keep\" is no number"},
           {"blocks.*/2x=keep", "\"2x\" in"},
           {"all,", "\"\" is no rule"}}) {
    EXPECT_THAT(CheckpointPolicy::Parse(text),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr(part)))
        << text;
  }
}

TEST(CheckpointPolicy, ARuleThatFitsNothingIsAMistake) {
  EXPECT_THAT(CheckpointPolicy::Matching("block.*").ActionsFor(Names()),
              StatusIs(StatusCode::kNotFound,
                       HasSubstr("no segment matches block.*; there are embeddings, blocks.0")));
  EXPECT_THAT(CheckpointPolicy::EveryKth(0).ActionsFor(Names()),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("one segment in 0")));
}

TEST(CheckpointPolicy, APlanDoesWhatItSays) {
  const auto compression = ActivationCompression::Create({.at_least = Bytes(64)}).value();
  const auto counters = std::make_shared<CheckpointCounters>();
  CheckpointPolicy policy = CheckpointPolicy::Matching("blocks.*");
  policy.Add({.pattern = "blocks.1", .action = kOffload}).KeepResults(MatrixProducts());
  ASSERT_OK_AND_ASSIGN(const auto plan,
                       policy.MakePlan(Names(), {.counters = counters, .offload = compression}));
  EXPECT_EQ(plan->options().keep, MatrixProducts());
  const at::Tensor weight = at::randn({16, 16}).set_requires_grad(true);
  at::Tensor x = at::randn({16, 16});
  for (const std::string& name : Names()) {
    x = plan->Run(name, [&](const at::Tensor& in) { return in.mm(weight).tanh(); }, x);
  }
  x.sum().backward();
  EXPECT_EQ(counters->segments, 2);
  EXPECT_GT(counters->kept_bytes, 0);
  EXPECT_GT(compression->statistics().compressed, 0);
}

}  // namespace
}  // namespace ait

// SPDX-License-Identifier: Apache-2.0
#include "ait/observe/step_metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::testing::HasSubstr;

TEST(StepMetrics, UnknownIsNullInJsonNeverZero) {
  EXPECT_EQ(
      ToJson({.step = 7}),
      R"({"step":7,"total_steps":null,"epoch":null,"loss":null,"learning_rate":null,)"
      R"("gradient_norm":null,"tokens_per_second":null,"step_time_ms":null,)"
      R"("exposed_communication":null,"data_wait":null,"host_memory_bytes":null,"elapsed_s":null,)"
      R"("remaining_s":null,"skipped_steps":0,"loss_scale":null,"counters":{}})");
}

TEST(StepMetrics, KnownValuesHaveTheirUnitInTheKey) {
  const StepMetrics metrics{.step = 2,
                            .total_steps = 10,
                            .epoch = 0.5,
                            .loss = 3.25,
                            .learning_rate = 0.125,
                            .gradient_norm = 1.5,
                            .tokens_per_second = 1000,
                            .step_time = std::chrono::microseconds(2500),
                            .exposed_communication = 0.25,
                            .data_wait = 0.125,
                            .host_memory = MiB(1),
                            .elapsed = std::chrono::seconds(3),
                            .remaining = std::chrono::milliseconds(1500),
                            .skipped_steps = 1,
                            .loss_scale = 65536,
                            .counters = {{"collectives", 3}, {"bytes", 12}}};
  EXPECT_EQ(
      ToJson(metrics),
      R"({"step":2,"total_steps":10,"epoch":0.5,"loss":3.25,"learning_rate":0.125,)"
      R"("gradient_norm":1.5,"tokens_per_second":1000.0,"step_time_ms":2.5,)"
      R"("exposed_communication":0.25,"data_wait":0.125,"host_memory_bytes":1048576,"elapsed_s":3.0,)"
      R"("remaining_s":1.5,"skipped_steps":1,"loss_scale":65536.0,"counters":{"collectives":3,"bytes":12}})");
}

TEST(StepMetrics, JsonRoundTripKeepsEveryField) {
  const std::string line = ToJson({.step = 2,
                                   .total_steps = 9,
                                   .loss = 1.0 / 3,
                                   .step_time = std::chrono::seconds(1),
                                   .host_memory = KiB(5),
                                   .skipped_steps = 4,
                                   .loss_scale = 0.5,
                                   .counters = {{"a", 1}, {"\"b\"", -2}}});
  ASSERT_OK_AND_ASSIGN(const StepMetrics read, StepMetricsFromJson(line));
  EXPECT_EQ(ToJson(read), line);
  EXPECT_EQ(read.loss, 1.0 / 3);
  EXPECT_EQ(read.host_memory, KiB(5));
  EXPECT_FALSE(read.epoch.has_value());
}

TEST(StepMetrics, LossThatIsNotFiniteSurvivesJson) {
  for (const double loss :
       {std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()}) {
    ASSERT_OK_AND_ASSIGN(const StepMetrics read, StepMetricsFromJson(ToJson({.loss = loss})));
    EXPECT_EQ(read.loss, loss);
  }
  ASSERT_OK_AND_ASSIGN(const StepMetrics read, StepMetricsFromJson(ToJson({.loss = NAN})));
  ASSERT_TRUE(read.loss.has_value());
  EXPECT_TRUE(std::isnan(*read.loss));
}

TEST(StepMetrics, DamagedJsonNamesTheField) {
  EXPECT_THAT(StepMetricsFromJson(""), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(StepMetricsFromJson("[1]"), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(StepMetricsFromJson(R"({"step":1}{"step":2})"), StatusIs(StatusCode::kDataLoss));
  EXPECT_THAT(StepMetricsFromJson("{}"), StatusIs(StatusCode::kDataLoss, HasSubstr("step")));
  EXPECT_THAT(StepMetricsFromJson(R"({"step":1.5})"),
              StatusIs(StatusCode::kDataLoss, HasSubstr("\"step\" is not an integer")));
  EXPECT_THAT(StepMetricsFromJson(R"({"step":1,"loss":"low"})"),
              StatusIs(StatusCode::kDataLoss, HasSubstr("\"loss\" is not a number")));
  EXPECT_THAT(StepMetricsFromJson(R"({"step":1,"counters":{"a":[]}})"),
              StatusIs(StatusCode::kDataLoss, HasSubstr("counters")));
}

TEST(StepMetrics, KeysOfALaterVersionAreIgnored) {
  EXPECT_OK(StepMetricsFromJson(R"({"step":1,"mood":"good","elapsed_s":1e300})"));
}

}  // namespace
}  // namespace ait

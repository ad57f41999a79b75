// SPDX-License-Identifier: Apache-2.0
#include "ait/parallel/memory_report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ait {
namespace {

TEST(MemoryReport, ShowsMeasuredBesideFormula) {
  MemoryReport report;
  report.measured.parameters = 3 << 20;
  report.formula.parameters = 2 << 20;
  report.measured.states = 5 << 20;
  EXPECT_EQ(report.measured.total(), 8 << 20);
  EXPECT_THAT(report.Describe(), ::testing::ContainsRegex("parameters +3.0 +2.0"));
  EXPECT_THAT(report.Describe(), ::testing::ContainsRegex("total +8.0 +2.0"));
}

}  // namespace
}  // namespace ait

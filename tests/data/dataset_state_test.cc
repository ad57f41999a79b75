// SPDX-License-Identifier: Apache-2.0
#include "ait/data/dataset_state.h"

#include <gtest/gtest.h>

#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::StatusIs;
using ::testing::HasSubstr;

TEST(DatasetState, GoesToJsonAndBack) {
  const DatasetState state = {0x91f000000000000a, 7, 1'000'000'000'000};
  EXPECT_EQ(ToJson(state),
            R"({"delivered":1000000000000,"epoch":7,"plan":"91f000000000000a","version":1})");
  ASSERT_OK_AND_ASSIGN(const DatasetState read, DatasetStateFromJson(ToJson(state)));
  EXPECT_EQ(read, state);
}

TEST(DatasetState, RefusesWhatItDidNotWrite) {
  const auto expect_refused = [](std::string_view text, std::string_view reason) {
    EXPECT_THAT(DatasetStateFromJson(text),
                StatusIs(StatusCode::kInvalidArgument, HasSubstr(std::string(reason))))
        << text;
  };
  expect_refused("", "JSON");
  expect_refused("[1]", "JSON");
  expect_refused(R"({"delivered":1,"epoch":7,"plan":"91f000000000000a","version":1)", "JSON");
  expect_refused(R"({"delivered":1,"epoch":7,"plan":"91f000000000000a"})", "version");
  expect_refused(R"({"epoch":7,"plan":"91f000000000000a","version":1})", "delivered");
  expect_refused(R"({"delivered":-1,"epoch":7,"plan":"91f000000000000a","version":1})",
                 "delivered");
  expect_refused(R"({"delivered":1.5,"epoch":7,"plan":"91f000000000000a","version":1})",
                 "delivered");
  expect_refused(R"({"delivered":"1","epoch":7,"plan":"91f000000000000a","version":1})",
                 "delivered");
  expect_refused(R"({"delivered":1,"epoch":9223372036854775808,"plan":"91f000000000000a",)"
                 R"("version":1})",
                 "epoch");
  expect_refused(R"({"delivered":1,"epoch":7,"plan":"91f","version":1})", "plan");
  expect_refused(R"({"delivered":1,"epoch":7,"plan":"0x91f0000000000a","version":1})", "plan");
  expect_refused(R"({"delivered":1,"epoch":7,"plan":"91f000000000000a","version":2})", "version 2");
  expect_refused(R"({"delivered":1,"epoch":7,"plan":"91f000000000000a","version":1,"rank":0})",
                 "5 fields");
}

}  // namespace
}  // namespace ait

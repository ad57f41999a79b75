// SPDX-License-Identifier: Apache-2.0
#include "ait/base/env.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace ait {
namespace {

TEST(Env, ReadsEachVariableIntoItsField) {
  const Env env =
      Env::From([](const char* name) -> Env::Value { return std::string("value of ") + name; });
  EXPECT_EQ(env.rank, "value of RANK");
  EXPECT_EQ(env.master_port, "value of MASTER_PORT");
  EXPECT_EQ(env.ait_simd, "value of AIT_SIMD");
  int fields = 0;
  env.ForEach([&](const char* name, const Env::Value& value) {
    EXPECT_EQ(value, std::string("value of ") + name);
    ++fields;
  });
  EXPECT_EQ(fields * sizeof(Env::Value), sizeof(Env))
      << "a field is missing from the table in env.cc";
}

TEST(Env, HoldsNoVariableThatNobodyReads) {
  Env::From([](const char* name) -> Env::Value {
    return name;
  }).ForEach([](const char* name, const Env::Value&) {
    EXPECT_STRNE(name, "GROUP_RANK");
    EXPECT_STRNE(name, "SLURM_LAUNCH_NODE_IPADDR");  // may be that of the login node
  });
}

TEST(Env, EmptyTextCountsAsUnset) {
  const Env env = Env::From([](const char*) -> Env::Value { return ""; });
  EXPECT_EQ(env.rank, std::nullopt);
}

TEST(Env, FromProcessSeesTheEnvironment) {
  ASSERT_EQ(setenv("AIT_RUN_ID", "run-7", 1), 0);
  EXPECT_EQ(Env::FromProcess().ait_run_id, "run-7");
  ASSERT_EQ(unsetenv("AIT_RUN_ID"), 0);
  EXPECT_EQ(Env::FromProcess().ait_run_id, std::nullopt);
}

}  // namespace
}  // namespace ait

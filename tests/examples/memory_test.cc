// SPDX-License-Identifier: Apache-2.0
// examples/06-memory from outside: it tells where its memory is and who holds it, alone and as ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "ait/topology/budget.h"
#include "support/process.h"

namespace ait {
namespace {

using ::ait::testing::Process;
using ::testing::AnyOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

std::string RunProgram(const std::string& program, std::vector<std::string> args, int code = 0) {
  const ait::testing::Exit exit =
      Process::Spawn(
          {.program = program, .args = std::move(args), .timeout = std::chrono::seconds(200)})
          .Wait();
  EXPECT_EQ(exit.code, code) << exit.output;
  return exit.output;
}

void ExpectWhole(const std::string& output) {
  EXPECT_THAT(output, ContainsRegex("loss [0-9.]+ after 20 steps on CPUs [0-9]"));
  EXPECT_THAT(output,
              AnyOf(HasSubstr(", memory preferred on node "), HasSubstr(", memory first touch: ")));
  EXPECT_THAT(output, ContainsRegex("numa\\(preferred, node.*\\): (verified|unverified): "));
  EXPECT_THAT(output, HasSubstr("\n  model/data: 67108864 bytes in 1 block\n"));
  EXPECT_THAT(output,
              ContainsRegex("at most [0-9]+ bytes at once, [0-9]+ in [0-9]+ blocks in all"));
}

TEST(MemoryExample, AloneAndAsRanks) {
  const std::string alone = RunProgram(AIT_MEMORY, {});
  ExpectWhole(alone);
  EXPECT_THAT(alone, ContainsRegex("\n  model: [0-9]+ bytes in "));
  ExpectWhole(RunProgram(AIT_PROGRAM, {"run", "-n", "2", "--no-prefix", "--", AIT_MEMORY}));
}

TEST(MemoryExample, TakesTheNodeThatIsAskedFor) {
  const int node = ReadBudget().value().memory_nodes->value.front();
  EXPECT_THAT(RunProgram(AIT_MEMORY, {std::to_string(node)}),
              HasSubstr("numa(preferred, node " + std::to_string(node) + ")"));
  EXPECT_THAT(RunProgram(AIT_MEMORY, {"999"}, 1), HasSubstr("999"));
  EXPECT_THAT(RunProgram(AIT_MEMORY, {"abc"}, 1), HasSubstr("abc"));
}

}  // namespace
}  // namespace ait

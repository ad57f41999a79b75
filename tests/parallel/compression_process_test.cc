// SPDX-License-Identifier: Apache-2.0
// Compressed gradients over processes and Gloo: the same bits as over threads.
#include "parallel/compressed_training.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::Exit;
using ::ait::testing::Process;
using ::ait::testing::RunRanks;
using ::ait::testing::SpawnRanks;
using ::ait::testing::TrainCompressed;
using ::testing::HasSubstr;

TEST(CompressionProcesses, GiveTheSameBitsAsThreads) {
  const std::vector<std::string> methods = {"none", "bf16", "int8", "topk:0.05", "powersgd"};
  auto ranks = SpawnRanks({.program = AIT_TEST_RANK, .args = methods}, 2);
  std::vector<std::string> lines(2);
  for (const std::string& method : methods) {
    RunRanks(2, [&](std::shared_ptr<Communicator> communicator) {
      auto bits = TrainCompressed(communicator, method, 3);
      ASSERT_OK(bits);
      lines[static_cast<std::size_t>(communicator->rank().value())] +=
          StrCat(method, " ", *bits, "\n");
    });
  }
  EXPECT_EQ(lines[0], lines[1]);
  for (Process& rank : ranks) {
    const Exit exit = rank.Wait();
    EXPECT_EQ(exit.code, 0) << exit.output;
    EXPECT_THAT(exit.output, HasSubstr(lines[0]));
  }
}

TEST(CompressionThreads, AgreeWhenPiecesDoNotDivide) {
  for (const char* method : {"bf16", "int8:192", "topk:0.2", "powersgd"}) {
    std::vector<std::string> bits(3);
    RunRanks(3, [&](std::shared_ptr<Communicator> communicator) {
      auto result = TrainCompressed(communicator, method, 2);
      ASSERT_OK(result);
      bits[static_cast<std::size_t>(communicator->rank().value())] = *result;
    });
    EXPECT_EQ(bits[0], bits[1]) << method;
    EXPECT_EQ(bits[0], bits[2]) << method;
  }
}

}  // namespace
}  // namespace ait

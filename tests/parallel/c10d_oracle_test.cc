// SPDX-License-Identifier: Apache-2.0
// DataParallel against c10d::Reducer, over ait's transports by way of c10d and over libtorch's own
// Gloo, in threads and in processes: all give the same bits.
#include "parallel/c10d_reducer.h"
// Keep the order.
#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::Process;
using ::ait::testing::RunRanks;
using ::ait::testing::SpawnRanks;

std::string BitsOfThreads() {
  auto second_group = MakeThreadGroup(WorldSize(2));
  std::vector<std::string> bits(2);
  RunRanks(2, [&](std::shared_ptr<Communicator> communicator) {
    const auto rank = static_cast<std::size_t>(communicator->rank().value());
    ASSERT_OK_AND_ASSIGN(bits[rank],
                         testing::CompareGradients(communicator, ToBackend(second_group[rank])));
  });
  EXPECT_EQ(bits[0], bits[1]);
  return bits[0];
}

TEST(DataParallel, GivesTheGradientsOfC10dReducerBitForBit) {
  EXPECT_EQ(BitsOfThreads(), BitsOfThreads());
}

class InProcesses : public ::testing::TestWithParam<const char*> {};

TEST_P(InProcesses, TheReducerGivesTheSameBits) {
  auto ranks = SpawnRanks({.program = AIT_TEST_RANK,
                           .args = {GetParam()},
                           .environment = {{"DDP_DISABLE_COMM_MEM", "0"}}},
                          2);
  const std::string bits = BitsOfThreads();
  for (Process& rank : ranks) rank.ExpectExit(0, "bits " + bits);
}

INSTANTIATE_TEST_SUITE_P(DataParallel, InProcesses,
                         ::testing::Values("ait", "gloo", "shared_memory"),
                         [](const auto& backend) { return std::string(backend.param); });

}  // namespace
}  // namespace ait

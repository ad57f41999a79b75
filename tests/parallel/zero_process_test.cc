// SPDX-License-Identifier: Apache-2.0
// Sharded training over processes: over shared memory, where ranks write into each other's
// parameters, and over Gloo, where they gather. The same bits as over threads.
#include "parallel/zero_lines.h"
#include "support/process.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::ait::testing::Exit;
using ::ait::testing::Process;
using ::ait::testing::RunRanks;
using ::ait::testing::SpawnRanks;
using ::ait::testing::ZeroLines;
using ::testing::HasSubstr;

class ZeroProcesses : public ::testing::TestWithParam<const char*> {};

TEST_P(ZeroProcesses, GiveTheSameBitsAsThreads) {
  auto ranks = SpawnRanks({.program = AIT_TEST_RANK, .args = {GetParam()}}, 2);
  std::vector<std::string> lines(2);
  RunRanks(2, [&](std::shared_ptr<Communicator> communicator) {
    lines[static_cast<std::size_t>(communicator->rank().value())] = ZeroLines(communicator);
  });
  EXPECT_EQ(lines[0], lines[1]);
  for (Process& rank : ranks) {
    const Exit exit = rank.Wait();
    EXPECT_EQ(exit.code, 0) << exit.output;
    EXPECT_THAT(exit.output, HasSubstr(lines[0]));
  }
}

INSTANTIATE_TEST_SUITE_P(Transports, ZeroProcesses, ::testing::Values("shm", "gloo"),
                         [](const auto& transport) { return std::string(transport.param); });

}  // namespace
}  // namespace ait

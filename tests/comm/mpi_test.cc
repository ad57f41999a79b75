// SPDX-License-Identifier: Apache-2.0
// What the transport over MPI says in one process that no mpirun has started; the rest is in
// tests/multiprocess/mpi_contract_test.cc.
#include "ait/comm/mpi.h"

#include <gtest/gtest.h>

#include "ait/comm/tcp_store.h"
#include "ait/comm/transport.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using ::testing::HasSubstr;

Status ConnectAs(int rank, int size, MpiOptions options = {}) {
  LaunchInfo launch;
  launch.rank = Rank(rank);
  launch.size = WorldSize(size);
  return Mpi(options)->Connect(launch, nullptr, Deadline::After(std::chrono::seconds(20))).status();
}

TEST(Mpi, IsMissingWithAWordOnHowToGetIt) {
  if (HasMpi()) GTEST_SKIP() << "this build has MPI";
  const Status status = ConnectAs(0, 2);
  EXPECT_EQ(status.code(), StatusCode::kUnimplemented);
  EXPECT_THAT(Message(status), HasSubstr("AIT_WITH_MPI"));
}

TEST(Mpi, RefusesAWorldThatIsNotThatOfMpi) {
  if (!HasMpi()) GTEST_SKIP() << "this build has no MPI";
  EXPECT_EQ(Mpi()->name(), "mpi");
  EXPECT_EQ(ConnectAs(0, 1, {.segment = Bytes(100)}).code(), StatusCode::kInvalidArgument);
  const Status wrong = ConnectAs(1, 2);
  EXPECT_EQ(wrong.code(), StatusCode::kFailedPrecondition) << wrong.ToString();
  EXPECT_THAT(Message(wrong), HasSubstr("rank 0 of 1, for the world rank 1 of 2"));
  const Status again = ConnectAs(0, 1);
  EXPECT_EQ(again.code(), StatusCode::kFailedPrecondition) << again.ToString();
  EXPECT_THAT(Message(again), HasSubstr("finalised"));
}

}  // namespace
}  // namespace ait

// SPDX-License-Identifier: Apache-2.0
// What goes wrong in and around NCCL, injected into the fake one: the ranks are told, in time, and
// nothing hangs.
#include <atomic>
#include <future>

#include "ait/comm/world.h"
#include "comm/nccl_join.h"
#include "comm/nccl_ranks.h"
#include "comm/tcp_store_socket.h"
#include "support/fake_gpu.h"
#include "support/status_matchers.h"

namespace ait {
namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using testing::FakeGpuCounted;
using testing::FakeGpuFaults;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::NcclRank;
using testing::StatusIs;

class NcclFaults : public ::testing::Test {
 protected:
  NcclFaults() {
    testing::ResetFakeGpu();
    const std::string library = testing::FakeGpuLibrary();
    options_ = {.devices = DeviceRuntime::Open({.library = library}), .library = library};
  }
  ~NcclFaults() override { testing::ResetFakeGpu(); }

  StatusOr<std::unique_ptr<Transport>> Join(int rank, int size, Deadline deadline,
                                            std::function<std::vector<Rank>()> departed = {}) {
    NcclOptions own = options_;
    if (own.device == -1) own.device = rank;
    return internal::JoinNcclWith(
        {.store = store_, .departed = std::move(departed), .name = "g", .rank = rank},
        WorldSize(size), deadline, own);
  }

  /// Two ranks that are connected; `departed` is the control plane's word to both.
  std::vector<std::shared_ptr<Communicator>> JoinTwo(
      const std::function<std::vector<Rank>()>& departed = {}) {
    const auto join = [&](int rank) {
      auto transport = Join(rank, 2, Deadline::After(30s), departed);
      EXPECT_OK(transport);
      return std::make_shared<Communicator>(*std::move(transport));
    };
    auto other = std::async(std::launch::async, join, 1);
    std::vector<std::shared_ptr<Communicator>> ranks = {join(0)};
    ranks.push_back(other.get());
    return ranks;
  }

  static void AwaitNoCommunicators() {
    while (FakeGpuCounted().communicators != 0) std::this_thread::sleep_for(1ms);
  }

  const std::shared_ptr<Store> store_ = MakeProcessStore();
  NcclOptions options_;
};

TEST_F(NcclFaults, DescribesWhatItFound) {
  ASSERT_OK_AND_ASSIGN(const std::string text, DescribeNccl(options_));
  EXPECT_THAT(text, AllOf(HasSubstr("NCCL 2."), HasSubstr("libait_fake_gpu")));
}

TEST_F(NcclFaults, WrongVersionsAreRefused) {
  for (const int version : {21700, 30000}) {
    testing::SetFakeGpuState({.nccl_version = version});
    EXPECT_THAT(DescribeNccl(options_),
                StatusIs(StatusCode::kFailedPrecondition, HasSubstr("or a later 2.x")));
    EXPECT_THAT(Join(0, 2, Deadline::After(10s)).status(),
                StatusIs(StatusCode::kFailedPrecondition, HasSubstr("no NCCL")));
  }
  testing::SetFakeGpuState({.nccl_version = 21900});
  EXPECT_OK(DescribeNccl(options_));
}

TEST_F(NcclFaults, ALibraryThatIsNoNcclIsRefused) {
  EXPECT_THAT(DescribeNccl({.library = "libc.so.6"}),
              StatusIs(StatusCode::kFailedPrecondition, HasSubstr("has no function nccl")));
}

TEST_F(NcclFaults, WrongOptionsAreRefused) {
  const auto refused = [&](const auto& change) {
    options_ = {.devices = options_.devices, .library = options_.library};
    change(options_);
    return Join(0, 1, Deadline::After(10s)).status();
  };
  EXPECT_THAT(refused([](NcclOptions& o) { o.device = -2; }),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("device -2")));
  EXPECT_THAT(refused([](NcclOptions& o) { o.device = 7; }),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("none of the 2")));
  EXPECT_THAT(refused([](NcclOptions& o) { o.host_staging = Bytes(-1); }),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("host_staging")));
  EXPECT_THAT(refused([](NcclOptions& o) { o.abort_timeout = 0ms; }),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("abort_timeout")));
  EXPECT_THAT(
      JoinNccl(*store_, "g", Rank(2), WorldSize(2), Deadline::Infinite(), options_).status(),
      StatusIs(StatusCode::kInvalidArgument, HasSubstr("rank 2 of 2")));
}

TEST_F(NcclFaults, WhoDoesNotJoinIsNamed) {
  const Status status = Join(0, 2, Deadline::After(100ms)).status();
  EXPECT_THAT(status, StatusIs(StatusCode::kDeadlineExceeded,
                               HasSubstr("rank 0: rank 1 did not join in time")));
  AwaitNoCommunicators();
}

TEST_F(NcclFaults, ACommunicatorThatDoesNotConnectIsAborted) {
  testing::SetFakeGpuState({.init_polls = 1 << 30});
  auto other = std::async(std::launch::async, [&] { return Join(1, 2, Deadline::After(100ms)); });
  const Status status = Join(0, 2, Deadline::After(100ms)).status();
  // The first one to give up tells the other.
  EXPECT_THAT(status, StatusIs(StatusCode::kDeadlineExceeded));
  EXPECT_THAT(other.get().status(),
              StatusIs(StatusCode::kDeadlineExceeded, HasSubstr("NCCL did not connect them")));
  AwaitNoCommunicators();
  EXPECT_EQ(FakeGpuCounted().aborts, 2);
}

/// One that cannot join tells the others, which need not wait for their deadline.
TEST_F(NcclFaults, WhyARankCannotJoinIsToldToAll) {
  auto other = std::async(std::launch::async, [&] { return Join(0, 2, Deadline::Infinite()); });
  NcclOptions wrong = options_;
  wrong.device = 9;
  const auto failed = internal::JoinNcclWith({.store = store_, .name = "g", .rank = 1},
                                             WorldSize(2), Deadline::Infinite(), wrong);
  EXPECT_THAT(failed.status(), StatusIs(StatusCode::kInvalidArgument, HasSubstr("device 9")));
  EXPECT_THAT(other.get().status(),
              StatusIs(StatusCode::kInvalidArgument, HasSubstr("rank 0: rank 1: NCCL: device 9")));
}

TEST_F(NcclFaults, AnErrorOfInitIsReturned) {
  testing::SetFakeGpuState({.init_result = 5});  // ncclInvalidUsage
  EXPECT_THAT(Join(0, 1, Deadline::After(10s)).status(),
              StatusIs(StatusCode::kFailedPrecondition,
                       AllOf(HasSubstr("ncclCommInitRankConfig of rank 0 of 1 on device 0"),
                             HasSubstr("the fake NCCL's last words"))));
}

TEST_F(NcclFaults, APeerThatDiesIsNamed) {
  std::atomic<bool> died{false};
  const auto ranks =
      JoinTwo([&] { return died ? std::vector<Rank>{Rank(1)} : std::vector<Rank>{}; });
  std::vector<float> x(10);
  const Work work = ranks[0]->AllReduce(View(x), ReduceOp::kSum, {.label = "bucket 3"});
  const Work message = ranks[0]->Receive(View(x), Rank(1));
  died = true;
  EXPECT_THAT(work.Wait(), StatusIs(StatusCode::kUnavailable,
                                    AllOf(HasSubstr("rank 0: all-reduce"), HasSubstr("bucket 3"),
                                          HasSubstr("rank 1 died"))));
  EXPECT_THAT(message.Wait(), StatusIs(StatusCode::kUnavailable, HasSubstr("rank 1 died")));
  EXPECT_THAT(ranks[0]->Barrier().Wait(), StatusIs(StatusCode::kAborted, HasSubstr("rank 1 died")));
}

TEST_F(NcclFaults, AnErrorOfNcclEndsTheGroup) {
  const auto ranks = JoinTwo();
  std::vector<float> x(10);
  const Work work = ranks[0]->AllReduce(View(x), ReduceOp::kSum);
  testing::SetFakeGpuState({.async_error = 6, .async_error_rank = 0});  // ncclRemoteError
  EXPECT_THAT(work.Wait(), StatusIs(StatusCode::kUnavailable,
                                    HasSubstr("remote process exited or there was a network")));
  testing::SetFakeGpuState({});
  EXPECT_THAT(ranks[1]->AllReduce(View(x), ReduceOp::kSum).Wait(),
              StatusIs(StatusCode::kUnavailable, HasSubstr("remote process exited")));
}

/// NCCL notices first that a peer is gone; the control plane then says who.
TEST_F(NcclFaults, WhomNcclLostIsAskedOfTheControlPlane) {
  std::atomic<bool> died{false};
  const auto ranks =
      JoinTwo([&] { return died ? std::vector<Rank>{Rank(1)} : std::vector<Rank>{}; });
  std::vector<float> x(10);
  const Work work = ranks[0]->AllReduce(View(x), ReduceOp::kSum);
  testing::SetFakeGpuState({.async_error = 6, .async_error_rank = 0});
  std::this_thread::sleep_for(50ms);
  EXPECT_FALSE(work.done());  // it waits for the word
  died = true;
  EXPECT_THAT(work.Wait(), StatusIs(StatusCode::kUnavailable, HasSubstr("rank 1 died")));
}

/// The error then says that the device is stuck, and the call returns all the same.
TEST_F(NcclFaults, AnAbortThatHangsIsAnError) {
  options_.abort_timeout = 100ms;
  auto ranks = JoinTwo();
  std::vector<float> x(10);
  FakeGpuFaults faults;
  faults.abort_hangs = true;
  testing::SetFakeGpuState(faults);
  EXPECT_THAT(ranks[0]->AllReduce(View(x), ReduceOp::kSum, {.timeout = 50ms}).Wait(),
              StatusIs(StatusCode::kDeadlineExceeded,
                       AllOf(HasSubstr("rank 1 did not come in time"),
                             HasSubstr("NCCL has not let go of the buffers after 100 ms"),
                             HasSubstr("end this process"))));
  ranks.clear();
  EXPECT_GT(FakeGpuCounted().communicators, 0);
  testing::SetFakeGpuState({});
  AwaitNoCommunicators();
}

/// A communicator that waits for another to be aborted would never be.
TEST_F(NcclFaults, AllCommunicatorsAreAbortedAtOnce) {
  options_.abort_timeout = 100ms;
  auto ranks = JoinTwo();
  std::vector<std::int64_t> a(10);
  std::vector<std::int64_t> b(10);
  // Two pipes that connect, and hang: their calls are never taken.
  FakeGpuFaults faults;
  faults.call_polls = 1 << 30;
  testing::SetFakeGpuState(faults);
  std::vector<Work> works;
  for (const int rank : {0, 1}) {
    const auto r = static_cast<std::size_t>(rank);
    works.push_back(ranks[r]->Send(rank == 0 ? View(a) : View(b), Rank(1 - rank)));
    works.push_back(ranks[r]->Receive(rank == 0 ? View(b) : View(a), Rank(1 - rank)));
  }
  while (FakeGpuCounted().sends < 2) std::this_thread::sleep_for(1ms);
  faults.abort_hangs = true;
  testing::SetFakeGpuState(faults);
  ranks[0]->Abort(InternalError("the disk is full"));
  EXPECT_THAT(works[0].Wait(), StatusIs(StatusCode::kAborted, HasSubstr("the disk is full")));
  EXPECT_GE(FakeGpuCounted().concurrent_aborts, 3);
  testing::SetFakeGpuState({});
  EXPECT_THAT(works[3].Wait(), StatusIs(StatusCode::kAborted, HasSubstr("the disk is full")));
  ranks.clear();
  AwaitNoCommunicators();
}

/// A receive that was given up as the sender set out: the bytes go nowhere, the group goes on.
TEST_F(NcclFaults, MessagesThatAreGivenUpLeaveTheGroupWhole) {
  const auto ranks = JoinTwo();
  for (int round = 0; round < 20; ++round) {
    std::vector<int> out(100, 7);
    std::vector<int> in(100, 1);
    const Work sent = ranks[0]->Send(View(out), Rank(1), 1,
                                     {.timeout = std::chrono::milliseconds(1 + round % 4)});
    const Work received = ranks[1]->Receive(View(in), Rank(0), 1,
                                            {.timeout = std::chrono::milliseconds(1 + round % 3)});
    if (round % 5 == 0) received.Cancel();
    static_cast<void>(sent.Wait());
    const Status status = received.Wait();
    EXPECT_EQ(in, std::vector<int>(100, status.ok() ? 7 : 1)) << status;
  }
  std::vector<int> out(3, 5);
  std::vector<int> in(3);
  const Work sent = ranks[0]->Send(View(out), Rank(1), 9);
  EXPECT_OK(ranks[1]->Receive(View(in), Rank(0), 9).Wait());
  EXPECT_OK(sent.Wait());
  EXPECT_EQ(in, out);
}

/// A whole World: the device is the local rank.
TEST_F(NcclFaults, AWorldOfTwo) {
  const int listener = internal::Listen("127.0.0.1", 0)->Release();
  const std::uint16_t port = *internal::LocalPort(listener);
  const auto run = [&](int rank) -> Status {
    Env env;
    env.rank = StrCat(rank);
    env.world_size = "2";
    env.ait_run_id = "a run";
    env.master_addr = "127.0.0.1";
    env.master_port = StrCat(port);
    if (rank == 0) env.ait_listen_fd = StrCat(listener);
    AIT_ASSIGN_OR_RETURN(const auto world,
                         World::FromEnvironment({.transport = Nccl(options_), .env = env}));
    NcclRank self{.devices = options_.devices, .device = Device(rank)};
    AIT_ASSIGN_OR_RETURN(auto x, testing::OnDevice<int>::Create(self, {rank + 1}));
    AIT_RETURN_IF_ERROR(world->communicator()->AllReduce(x.view(), ReduceOp::kSum).Wait());
    AIT_RETURN_IF_ERROR(x.Expect("the sum", {3}));
    return world->communicator()->Barrier().Wait();
  };
  auto other = std::async(std::launch::async, run, 1);
  EXPECT_OK(run(0));
  EXPECT_OK(other.get());
}

}  // namespace
}  // namespace ait

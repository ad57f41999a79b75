// SPDX-License-Identifier: Apache-2.0
// Collectives on device memory, over the fake NCCL: nccl_gpu_test.cc does the same on real GPUs.
#include "comm/nccl_device_cases.h"
#include "support/fake_gpu.h"

namespace ait {
namespace {

using testing::FakeGpuCounted;
using testing::FakeGpuCounts;
using ::testing::HasSubstr;
using testing::IsOk;
using testing::NcclRank;
using testing::OnDevice;
using testing::StatusIs;

/// The parameter is what a call of NCCL has to be polled before it is taken.
class NcclDevice : public ::testing::TestWithParam<int> {
 protected:
  NcclDevice() {
    testing::ResetFakeGpu();
    testing::SetFakeGpuState({.devices = 4, .init_polls = GetParam(), .call_polls = GetParam()});
  }
  NcclOptions Options() const {
    const std::string library = testing::FakeGpuLibrary();
    return {.devices = DeviceRuntime::Open({.library = library}), .library = library};
  }
  void Run(int size, const std::function<Status(NcclRank)>& body, NcclOptions options) {
    const auto statuses =
        testing::RunNcclRanks(size, options, {.timeout = std::chrono::seconds(30)}, body);
    for (const Status& status : statuses) EXPECT_OK(status);
  }
  void Run(int size, const std::function<Status(NcclRank)>& body) { Run(size, body, Options()); }
};

TEST_P(NcclDevice, EveryCollective) {
  for (const int size : {1, 2, 3, 4}) Run(size, testing::EveryCollective);
  EXPECT_GT(FakeGpuCounted().all_reduces, 0);  // it was NCCL that did it
}

TEST_P(NcclDevice, Reductions) {
  for (const int size : {1, 2, 4}) Run(size, testing::DeviceReductions);
}

TEST_P(NcclDevice, MessagesInBothDirections) { Run(3, testing::DeviceMessages); }

TEST_P(NcclDevice, OperationsRunInOrder) { Run(2, testing::DeviceOrder); }

TEST_P(NcclDevice, MemoryIsRegisteredAndKept) {
  Run(2, testing::DeviceMemory);
  const FakeGpuCounts counts = FakeGpuCounted();
  EXPECT_EQ(counts.max_registrations, 4);  // one block, twice used; the group and its child, a rank
  EXPECT_EQ(counts.registrations, 0);
}

TEST_P(NcclDevice, SplitsByNccl) {
  Run(4, [](NcclRank rank) -> Status {
    const int r = rank.communicator->rank().value();
    AIT_ASSIGN_OR_RETURN(const auto child, rank.communicator->Split(r == 0 ? -1 : r % 2, 0));
    if (child == nullptr) return OkStatus();
    AIT_ASSIGN_OR_RETURN(auto x, OnDevice<int>::Create(rank, {r}));
    AIT_RETURN_IF_ERROR(child->AllReduce(x.view(), ReduceOp::kSum).Wait());
    return x.Expect("sum in the child", {r % 2 == 1 ? 4 : 2});
  });
  EXPECT_EQ(FakeGpuCounted().splits, 4);
  EXPECT_EQ(FakeGpuCounted().inits, 4);
}

TEST_P(NcclDevice, NothingIsLeftBehind) {
  const FakeGpuCounts before = FakeGpuCounted();
  Run(2, [](NcclRank rank) -> Status {
    AIT_RETURN_IF_ERROR(testing::EveryCollective(rank));
    AIT_RETURN_IF_ERROR(testing::DeviceMemory(rank));
    return testing::DeviceMessages(rank);
  });
  const FakeGpuCounts after = FakeGpuCounted();
  EXPECT_EQ(after.communicators, before.communicators);
  EXPECT_EQ(after.streams, before.streams);
  EXPECT_EQ(after.events, before.events);
  EXPECT_EQ(after.blocks, before.blocks);
  EXPECT_EQ(after.aborts, 0);
}

TEST_P(NcclDevice, WaitsForTheStreamThatMakesTheData) {
  const NcclOptions defaults = Options();
  std::vector<Stream> producers;
  for (const int device : {0, 1}) {
    StatusOr<Stream> stream = Stream::Create(defaults.devices, Device(device));
    ASSERT_OK(stream);
    producers.push_back(*std::move(stream));
  }
  NcclOptions options = defaults;
  options.producer_stream = [&](Device device) {
    return producers[static_cast<std::size_t>(device.value())].native();
  };
  Run(
      2,
      [&](NcclRank rank) -> Status {
        Stream& producer = producers[static_cast<std::size_t>(rank.device.value())];
        constexpr std::size_t kCount = 1 << 20;
        for (int round = 1; round <= 5; ++round) {
          AIT_ASSIGN_OR_RETURN(
              auto x, OnDevice<std::uint8_t>::Create(rank, std::vector<std::uint8_t>(kCount)));
          for (int i = 0; i <= round; ++i) {
            AIT_RETURN_IF_ERROR(producer.Fill(x.view().data, i, x.view().bytes()));
          }
          AIT_RETURN_IF_ERROR(rank.communicator->AllReduce(x.view(), ReduceOp::kSum).Wait());
          AIT_RETURN_IF_ERROR(
              x.Expect("sum of what the stream made",
                       std::vector<std::uint8_t>(kCount, static_cast<std::uint8_t>(2 * round))));
        }
        return OkStatus();
      },
      options);
}

TEST_P(NcclDevice, RefusesWhatItCannotMove) {
  NcclOptions options = Options();
  options.host_staging = KiB(1);
  Run(
      2,
      [](NcclRank rank) -> Status {
        Communicator& all = *rank.communicator;
        AIT_ASSIGN_OR_RETURN(auto on_device, OnDevice<float>::Create(rank, {1, 2, 3, 4}));
        AIT_ASSIGN_OR_RETURN(auto shorts, OnDevice<std::int16_t>::Create(rank, {1, 2}));
        NcclRank other = rank;
        other.device = Device(rank.device.value() ^ 1);
        AIT_ASSIGN_OR_RETURN(auto elsewhere, OnDevice<float>::Create(other, {1, 2, 3, 4}));
        std::vector<float> on_host(2);
        std::vector<float> large(1000);
        const auto refuses = [](const Work& work, StatusCode code,
                                std::string_view text) -> Status {
          const Status status = work.Wait();
          if (status.code() == code && Message(status).find(text) != std::string::npos) {
            return OkStatus();
          }
          return InternalError("expected \"", text, "\", saw ", status.ToString());
        };
        const StatusCode invalid = StatusCode::kInvalidArgument;
        AIT_RETURN_IF_ERROR(
            refuses(all.AllReduce(View(large), ReduceOp::kSum), invalid, "1024 are allowed"));
        AIT_RETURN_IF_ERROR(refuses(all.AllReduce(elsewhere.view(), ReduceOp::kSum), invalid,
                                    "and this rank uses device"));
        AIT_RETURN_IF_ERROR(
            refuses(all.AllGather(View(on_host), on_device.view()), invalid, "on the host"));
        AIT_RETURN_IF_ERROR(refuses(all.AllReduce(shorts.view(), ReduceOp::kSum),
                                    StatusCode::kUnimplemented, "NCCL cannot reduce int16"));
        AIT_RETURN_IF_ERROR(all.Broadcast(shorts.view(), Rank(0)).Wait());  // that it can
        return all.AllReduce(on_device.view(), ReduceOp::kSum).Wait();
      },
      options);
}

/// Reductions on the host and on the device are different operations of NCCL.
TEST_P(NcclDevice, HostAndDeviceDoNotMix) {
  const auto statuses = testing::RunNcclRanks(
      2, Options(), {.timeout = std::chrono::seconds(30)}, [](NcclRank rank) -> Status {
        AIT_ASSIGN_OR_RETURN(auto on_device, OnDevice<float>::Create(rank, {1, 2}));
        std::vector<float> on_host(2);
        const bool is_first = rank.communicator->rank() == Rank(0);
        return rank.communicator
            ->AllReduce(is_first ? View(on_host) : on_device.view(), ReduceOp::kSum)
            .Wait();
      });
  for (const Status& status : statuses) {
    EXPECT_THAT(status, StatusIs(StatusCode::kInvalidArgument,
                                 HasSubstr("rank 0: all-reduce (sum) of 2 float32, sequence 1, on "
                                           "the host; rank 1: all-reduce")));
  }
}

INSTANTIATE_TEST_SUITE_P(Polls, NcclDevice, ::testing::Values(0, 3));

}  // namespace
}  // namespace ait

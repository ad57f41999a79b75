// SPDX-License-Identifier: Apache-2.0
// The NCCL transport on real GPUs, a thread and a GPU a rank: with one GPU a world of one, with
// several the contract of `Communicator` and the cases on device memory.
#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "comm/nccl_device_cases.h"
#include "contract/communicator_contract.h"

namespace ait {
namespace {

using testing::IsOk;
using testing::NcclRank;

/// Each rank has a GPU of its own, so the world is as large as the machine; 4 at most.
std::vector<int> WorldSizes() {
  const int gpus = std::min(DeviceRuntime::Open()->count(), 4);
  return gpus < 2 ? std::vector<int>{1} : std::vector<int>{1, 2, gpus};
}

std::vector<Status> RunOnGpus(const testing::ContractCase& contract_case, WorldSize size) {
  return testing::RunNcclRanks(
      size.value(), {.devices = DeviceRuntime::Open()}, {.timeout = testing::kContractTimeout},
      [&](NcclRank rank) { return contract_case.body(std::move(rank.communicator)); });
}

class NcclOnGpus : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    if (devices_->count() < GetParam()) GTEST_SKIP() << devices_->status();
    if (const auto nccl = DescribeNccl(); !nccl.ok()) GTEST_SKIP() << nccl.status();
  }
  void Run(const std::function<Status(NcclRank)>& body) {
    const auto statuses = testing::RunNcclRanks(GetParam(), {.devices = devices_},
                                                {.timeout = std::chrono::seconds(60)}, body);
    for (const Status& status : statuses) EXPECT_OK(status);
  }
  std::shared_ptr<DeviceRuntime> devices_ = DeviceRuntime::Open();
};

TEST_P(NcclOnGpus, EveryCollective) { Run(testing::EveryCollective); }
TEST_P(NcclOnGpus, Reductions) { Run(testing::DeviceReductions); }
TEST_P(NcclOnGpus, Order) { Run(testing::DeviceOrder); }
TEST_P(NcclOnGpus, Memory) { Run(testing::DeviceMemory); }
TEST_P(NcclOnGpus, Messages) {
  if (GetParam() == 1) GTEST_SKIP() << "no GPU to send to";
  Run(testing::DeviceMessages);
}

INSTANTIATE_TEST_SUITE_P(Gpus, NcclOnGpus, ::testing::ValuesIn(WorldSizes()));

/// Buffers of the host, so that it holds whatever order NCCL sums in.
class NcclGpuContract : public testing::CommunicatorContract {};

TEST_P(NcclGpuContract, Holds) {
  if (const auto devices = DeviceRuntime::Open(); devices->count() < std::get<2>(GetParam())) {
    GTEST_SKIP() << devices->status();
  }
  if (const auto nccl = DescribeNccl(); !nccl.ok()) GTEST_SKIP() << nccl.status();
  testing::CheckContract(GetParam());
}

INSTANTIATE_TEST_SUITE_P(Gpus, NcclGpuContract,
                         ::testing::ValuesIn(testing::ContractParameters(
                             RunOnGpus, testing::CommunicatorContractCases(), WorldSizes())),
                         testing::ContractName);

}  // namespace
}  // namespace ait

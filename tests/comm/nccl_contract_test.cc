// SPDX-License-Identifier: Apache-2.0
// The contract of `Communicator`, held by the NCCL transport over the fake NCCL. Its buffers are on
// the host; nccl_device_test.cc has those on the device.
#include "comm/nccl_ranks.h"
#include "contract/communicator_contract.h"
#include "support/fake_gpu.h"

namespace ait {
namespace {

std::vector<Status> RunOnFake(const testing::ContractCase& contract_case, WorldSize size) {
  testing::ResetFakeGpu();
  testing::SetFakeGpuState({.devices = size.value(), .init_polls = 2, .call_polls = 2});
  const std::string library = testing::FakeGpuLibrary();
  return testing::RunNcclRanks(
      size.value(), {.devices = DeviceRuntime::Open({.library = library}), .library = library},
      {.timeout = testing::kContractTimeout},
      [&](testing::NcclRank rank) { return contract_case.body(std::move(rank.communicator)); });
}

}  // namespace
}  // namespace ait

AIT_COMMUNICATOR_CONTRACT(FakeNccl, ait::RunOnFake, CommunicatorContractCases(), 1, 2, 3, 4)

// SPDX-License-Identifier: Apache-2.0
// shared_memory_contract_rank: one rank that runs every case of the communicator contract over shared
// memory.
#include "ait/comm/shared_memory.h"
#include "multiprocess/contract_rank.h"

int main() { return ait::testing::RunContractRank(*ait::SharedMemory()); }

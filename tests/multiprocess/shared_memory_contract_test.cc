// SPDX-License-Identifier: Apache-2.0
// The communicator contract over shared memory, on 1 to 4 processes.
#include "multiprocess/contract_ranks.h"

AIT_COMMUNICATOR_CONTRACT(SharedMemory, RunOnProcesses, CommunicatorContractCases(), 1, 2, 3, 4);

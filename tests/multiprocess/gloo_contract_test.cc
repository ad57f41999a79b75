// SPDX-License-Identifier: Apache-2.0
// The communicator contract over Gloo, on 1 to 4 processes.
#include "multiprocess/contract_ranks.h"

AIT_COMMUNICATOR_CONTRACT(Gloo, RunOnProcesses, CommunicatorContractCases(), 1, 2, 3, 4);

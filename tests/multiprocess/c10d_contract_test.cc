// SPDX-License-Identifier: Apache-2.0
// The communicator contract over libtorch's ProcessGroupGloo as a backend of c10d, on processes.
#include "multiprocess/contract_ranks.h"

AIT_COMMUNICATOR_CONTRACT(C10d, RunOnProcesses, CommunicatorContractCases(), 1, 2, 3);

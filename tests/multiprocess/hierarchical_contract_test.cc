// SPDX-License-Identifier: Apache-2.0
// The communicator contract over two hosts, on 3 (two and one) and 4 processes.
#include "multiprocess/contract_ranks.h"

AIT_COMMUNICATOR_CONTRACT(Hierarchical, RunOnProcesses, CommunicatorContractCases(), 3, 4);

// SPDX-License-Identifier: Apache-2.0
// mpi_contract_rank: one rank that runs every case of the communicator contract over MPI.
#include "ait/comm/mpi.h"
#include "multiprocess/contract_rank.h"

int main() { return ait::testing::RunContractRank(*ait::Mpi()); }

// SPDX-License-Identifier: Apache-2.0
// gloo_contract_rank: one rank that runs every case of the communicator contract over Gloo.
#include "ait/tensor/gloo.h"
#include "multiprocess/contract_rank.h"

int main() { return ait::testing::RunContractRank(*ait::Gloo()); }

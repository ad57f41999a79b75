// SPDX-License-Identifier: Apache-2.0
// c10d_contract_rank: one rank that runs every case of the communicator contract over libtorch's
// ProcessGroupGloo, as a backend of c10d. C10D_SUMS=backend lets that sum.
#include "tensor/c10d_support.h"
// Keep the order.
#include <cstdlib>
#include <string_view>

#include "multiprocess/contract_rank.h"

int main() {
  const char* sums = std::getenv("C10D_SUMS");
  const auto provider = ait::C10d(
      [](const ait::C10dGroup& group, const ait::C10dStorePtr& store) {
        return ait::testing::RealGloo(store, group.rank.value(), group.size().value());
      },
      {.sums = sums != nullptr && sums == std::string_view("backend") ? ait::C10dSums::kBackend
                                                                      : ait::C10dSums::kRankOrder});
  return ait::testing::RunContractRank(*provider);
}

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TESTS_SUPPORT_FAKE_NCCL_KERNELS_H_
#define AIT_TESTS_SUPPORT_FAKE_NCCL_KERNELS_H_

// What the "kernels" of the fake NCCL do once all ranks have come.
//
// Sums go from the last rank to the first and half floats are rounded at every step: as with NCCL
// itself, the order is its own and the same on every rank. Counts that differ give wrong numbers,
// calls that differ hang.

#include <nccl.h>

#include <cstddef>
#include <optional>
#include <vector>

namespace ait::testing {

/// One call of a collective or message function.
struct FakeCall {
  enum class Kind { kAllReduce, kBroadcast, kReduce, kAllGather, kReduceScatter, kSend, kReceive };

  Kind kind;
  const void* input = nullptr;
  void* output = nullptr;
  std::size_t count = 0;
  ncclDataType_t type = ncclInt8;
  ncclRedOp_t op = ncclSum;
  int peer = 0;  // root, destination or source
};

/// Carries out what all ranks have launched together, a list a rank. False if the calls do not fit.
bool RunFakeCalls(const std::vector<std::optional<std::vector<FakeCall>>>& lists);

}  // namespace ait::testing

#endif  // AIT_TESTS_SUPPORT_FAKE_NCCL_KERNELS_H_

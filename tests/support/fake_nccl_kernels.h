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

/// Carries out a collective of all ranks. False if their calls do not fit.
bool RunFakeCollective(const std::vector<const FakeCall*>& calls);

/// Moves a message.
void RunFakeMessage(const FakeCall& send, const FakeCall& receive);

}  // namespace ait::testing

#endif  // AIT_TESTS_SUPPORT_FAKE_NCCL_KERNELS_H_

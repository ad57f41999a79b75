// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_THREAD_GROUP_H_
#define AIT_COMM_THREAD_GROUP_H_

// Ranks as threads of one process: a whole world in a unit test, or several model replicas in one
// program.
//
// Owners reduce their slice straight from the buffers of the others, in rank order, and write the
// result into them: nothing is copied. Every rank has one thread that carries out its operations in
// order. Signatures of all ranks are compared at every operation; a difference is an error on every
// rank.
//
//   auto ranks = MakeThreadGroup(WorldSize(4));
//   std::thread worker([&] { Train(ranks[1]); });

#include <memory>
#include <vector>

#include "ait/base/types.h"
#include "ait/comm/communicator.h"

namespace ait::inline v0 {

/// Makes the communicators of `size` ranks, at least 1; element r is rank r, for the thread that
/// plays it. Of several ranks each gets a flight recorder of its own; that of the options is for a
/// group of one.
std::vector<std::shared_ptr<Communicator>> MakeThreadGroup(WorldSize size,
                                                           CommunicatorOptions options = {});

}  // namespace ait::inline v0

#endif  // AIT_COMM_THREAD_GROUP_H_

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TENSOR_GLOO_H_
#define AIT_TENSOR_GLOO_H_

// The transport between processes that always works: Gloo of libtorch, over TCP.
//
//   auto world = World::FromEnvironment({.transport = Gloo()});
//
// Gloo only moves bytes between pairs of ranks; the collectives are ours. An all-reduce is a
// reduce-scatter and an all-gather in segments, so that both directions of every connection and the
// sums overlap; sums are in rank order. (Gloo's own reduce-scatter is a full all-reduce, its
// all-reduce sums in the order of a ring.) Data goes from and to the caller's buffers; the only
// scratch is a few segments per rank, allocated once.
//
// **Errors.** Calls that differ between ranks are noticed a quarter of a second after they got
// stuck, on all ranks; a rank that dies, at once; a rank that hangs, at the deadline and at most a
// second later. A callback of a `Work` may drop the last reference to its communicator, which then
// leaves its group in the background: let `main` go on for a moment after that.
//
// `Communicator::Survivors` makes a group of those who are left, agreed through the TcpStore. Rank 0
// serves it, so its death ends the run.
//
// The ranks' addresses are exchanged through the TcpStore: no second port is configured.

#include <memory>
#include <string>

#include "ait/base/log.h"
#include "ait/base/types.h"
#include "ait/comm/world.h"

namespace ait::inline v0 {

struct GlooOptions {
  /// Network interface, by name ("eth0"). Empty: GLOO_SOCKET_IFNAME if set, else the interface by
  /// which this host and rank 0 reach each other.
  std::string interface_name;
  /// What is sent and summed at a time; 4 KiB to 64 MiB.
  Bytes segment = MiB(1);
  /// Is told why a group ended. Outlives the communicators.
  LogSink* log = nullptr;
};

/// Gives `World::FromEnvironment` its transport. Wrong options are its error.
std::shared_ptr<TransportProvider> Gloo(GlooOptions options = {});

}  // namespace ait::inline v0

#endif  // AIT_TENSOR_GLOO_H_

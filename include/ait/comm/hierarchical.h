// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_HIERARCHICAL_H_
#define AIT_COMM_HIERARCHICAL_H_

// The transport of several hosts with several ranks each: memory inside a host, another transport
// between hosts.
//
//   auto world = World::FromEnvironment({.transport = Hierarchical({.between = Gloo()})});
//
// An all-reduce is a reduce-scatter inside each host, an all-reduce of each rank's slice with the
// ranks of the same local number on the other hosts, and an all-gather inside; in chunks, so that
// the three overlap. A host sends 2·S·(H - 1)/H bytes of a buffer of S, spread over its ranks; a
// flat transport sends as much for every rank. Reduce-scatter, all-gather and broadcast go the same
// ways; all-to-all, gather, scatter and messages to other hosts go over `between` as they are, and
// messages inside a host through memory.
//
// **Order of sums.** Host by host, in the order of each host's lowest rank, and inside a host rank
// by rank: ((r0 + r1) + (r2 + r3)) for two hosts of two. The same bits on every rank, for any size
// and chunk, and the same in a reduce-scatter as in an all-reduce; not the bits of a flat transport,
// which adds rank by rank. Partial sums of fp16 and bf16 stay fp32 between hosts, so they are
// rounded once. An average divides once, by the world size.
//
// **Uneven hosts.** As many ranks of every host talk to other hosts as the smallest host has; the
// others take part inside. So the same number on every host is fastest.
//
// Ranks of one host need not follow each other. Which ranks share a host is found out by
// `HostIdentity`, never taken from LOCAL_RANK.
//
// **Errors.** As promised by `Communicator`, in the ranks of the whole group: whichever of the
// groups inside fails, all of them end, and every rank that waits says the same reason. Ranks that
// differ in an operation are told a quarter of a second after they got stuck, or at once; a rank
// that dies is named at once, one that hangs at the deadline and at most a second later. An error
// of the transport below is told with the numbers that it uses, and what they mean.

#include <memory>
#include <string>
#include <vector>

#include "ait/base/clock.h"
#include "ait/base/log.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/shared_memory.h"
#include "ait/comm/transport.h"
#include "ait/comm/world.h"

namespace ait::inline v0 {

class Store;

/// What sums and averages of fp32 and bf16 look like between hosts; never inside one.
enum class WirePrecision {
  kExact,
  /// The partial sum of each host is rounded to bf16, those are added in fp32, and the result is
  /// rounded to bf16: half the bytes of fp32, the same bits on every rank.
  kBf16,
};

struct HierarchicalOptions {
  /// What connects the hosts: Gloo(), or any other that moves memory of the host. Needed.
  std::shared_ptr<TransportProvider> between;
  /// Inside each host.
  SharedMemoryOptions inside;
  /// See HierarchicalTuning.
  WirePrecision wire = WirePrecision::kExact;
  Bytes chunk = MiB(4);
  /// Is told which ranks share a host, and why a group ended. Outlives the communicators.
  LogSink* log = nullptr;
};

/// Gives `World::FromEnvironment` its transport. On one host it is the one inside alone, with one
/// rank on each the one between alone. `Automatic` (ait/comm/automatic.h) leaves the choice to a
/// rule. **Errors.** (of Connect) InvalidArgument: no `between`; those of both transports.
std::shared_ptr<TransportProvider> Hierarchical(HierarchicalOptions options);

struct HierarchicalTuning {
  WirePrecision wire = WirePrecision::kExact;
  /// Bytes of a buffer that go through the three steps at a time; 64 KiB to 1 GiB, equal on all
  /// ranks. The result does not depend on it.
  Bytes chunk = MiB(4);
  /// Is told why a group ended. Outlives the communicators.
  LogSink* log = nullptr;
};

/// The parts of a hierarchy, for one rank.
struct HostGroups {
  /// For every rank a number of its host, the same on all ranks. Only equality counts.
  std::vector<int> host_of_rank;
  /// The ranks of this host, in rank order; null if this rank is alone on its host.
  std::unique_ptr<Transport> inside;
  /// All ranks.
  std::unique_ptr<Transport> between;
  /// Where ranks leave word of failures; of all ranks, and of nobody else below `key`.
  std::shared_ptr<Store> store;
  std::string key;
};

/// **Collective. Blocks.** Puts a hierarchy together from parts that are connected: any transport
/// inside, any between. With one host, or one rank on every host, there is only one part to use.
/// **Errors.** InvalidArgument: the parts do not fit; those of `Transport::Subgroup`.
StatusOr<std::unique_ptr<Transport>> JoinHosts(HostGroups groups, Deadline deadline,
                                               const HierarchicalTuning& tuning = {});

}  // namespace ait::inline v0

#endif  // AIT_COMM_HIERARCHICAL_H_

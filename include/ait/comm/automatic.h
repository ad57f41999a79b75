// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_AUTOMATIC_H_
#define AIT_COMM_AUTOMATIC_H_

// The transport that fits where the ranks are.
//
//   auto world = World::FromEnvironment({.transport = Automatic({.between = Gloo()})});
//
// The rule, by what the ranks prove of their hosts (`HostIdentity`), not by LOCAL_RANK:
//
//   all ranks on one host               shared memory       ait/comm/shared_memory.h
//   several hosts, one rank on each     `between`
//   several hosts, some with more       hierarchical        ait/comm/hierarchical.h
//
// The choice and its reason go to the log: "shared-memory: 4 ranks on 1 host: 0 to 3". All ranks
// choose alike. The order in which sums are made depends on the choice; so on another number of
// hosts the last bits of a result may differ.

#include <memory>

#include "ait/comm/hierarchical.h"
#include "ait/comm/world.h"

namespace ait::inline v0 {

/// **Errors.** (of Connect) Those of the transport that is chosen.
std::shared_ptr<TransportProvider> Automatic(HierarchicalOptions options);

}  // namespace ait::inline v0

#endif  // AIT_COMM_AUTOMATIC_H_

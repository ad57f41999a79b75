// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_TOPOLOGY_RANK_PLACES_INTERNAL_H_
#define AIT_TOPOLOGY_RANK_PLACES_INTERNAL_H_

// Which CPUs each rank gets: the first half of rank_layout.h. The second, what its threads do with
// them, is in rank_layout.cc.

#include <optional>
#include <string>
#include <vector>

#include "ait/topology/rank_layout.h"

namespace ait::inline v0::internal {

struct RankPlaces {
  std::vector<CpuSet> cpus;              // by rank
  std::vector<std::optional<int>> gpus;  // by rank; of kGpu alone
  std::vector<CpuSharing> sharing;       // by rank
  std::vector<std::string> notes;
};

/// `usable` is not empty and a part of `machine.online`; the options are in their ranges.
StatusOr<RankPlaces> PlaceRanks(const Machine& machine, const CpuSet& usable,
                                const RankLayoutOptions& options);

/// Of `nodes`, the one at the least distance from `node`; nullopt if the distances are unknown and
/// `node` itself is not among them.
std::optional<int> NearestNode(const Machine& machine, int node, const NodeSet& nodes);

}  // namespace ait::inline v0::internal

#endif  // AIT_TOPOLOGY_RANK_PLACES_INTERNAL_H_

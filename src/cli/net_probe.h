// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_CLI_NET_PROBE_H_
#define AIT_CLI_NET_PROBE_H_

// What `ait doctor net` measures between the ranks of a run: whether each reaches each, how fast, and
// whether ranks of one host can share memory.

#include <string>
#include <utility>
#include <vector>

#include "ait/base/clock.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/store.h"

namespace ait::cli {

/// From one rank to another over TCP, the connection made by the first; and over shared memory, where
/// both are on one host (told once, for the lower rank first).
struct PairResult {
  int from = 0, to = 0;
  std::string address;              // of `to`, as it published it
  std::string error;                // empty: all was well
  double latency_us = 0;            // half of a round trip of one byte, the median
  double gigabytes_per_second = 0;  // 10^9
  bool shares_host = false;
  std::string shared_memory_error;
  double shared_memory_latency_us = 0;  // of a barrier
  double shared_memory_gigabytes_per_second = 0;
};

struct ProbeOptions {
  Rank rank;
  WorldSize size{1};
  std::string address;                         // by which the others reach this rank
  Duration timeout = std::chrono::seconds(5);  // of one pair
};

/// All ordered pairs of ranks in rounds: within one, no two pairs share a host, so that they do not
/// disturb each other. `hosts` has the host of every rank, "" where it is unknown.
std::vector<std::vector<std::pair<int, int>>> ProbeRounds(const std::vector<std::string>& hosts);

/// **Collective. Blocks.** The pairs of a round at the same time, round by round. All ranks get the
/// results of all pairs, by rank. **Errors.** Those of the store; a pair that fails, and a rank that
/// cannot listen, is a result.
StatusOr<std::vector<PairResult>> ProbePairs(Store& store, const ProbeOptions& options);

}  // namespace ait::cli

#endif  // AIT_CLI_NET_PROBE_H_

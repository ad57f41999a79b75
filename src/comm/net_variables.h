// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_NET_VARIABLES_H_
#define AIT_COMM_NET_VARIABLES_H_

// The variables that net_lint.h knows, with the grammar that the library which reads them has.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ait::inline v0::internal {

enum class NetGrammar {
  kText,
  kInteger,           // NCCL: strtoll, base 0, nothing looked at behind the number
  kDebugLevel,        // NCCL_DEBUG
  kSubsystems,        // NCCL_DEBUG_SUBSYS
  kPrefixes,          // NCCL_SOCKET_IFNAME: prefixes of interfaces, "^" excludes, "=" is exact
  kAdapters,          // NCCL_IB_HCA: the same of adapters, with :port
  kAlgorithms,        // NCCL_ALGO
  kProtocols,         // NCCL_PROTO
  kInterfaces,        // GLOO_SOCKET_IFNAME: names of interfaces
  kThreads,           // OMP_NUM_THREADS
  kFlag,              // c10d: 1, y, t, true, on (any case of the first letter) and their opposites
  kDistributedDebug,  // TORCH_DISTRIBUTED_DEBUG
};

struct NetVariable {
  std::string_view name;
  NetGrammar grammar = NetGrammar::kText;
  std::int64_t least = INT64_MIN, most = INT64_MAX;  // of an integer
  /// An integer that switches something off, left from the search of an old fault: the value that does.
  std::optional<std::int64_t> workaround = std::nullopt;
  std::string_view workaround_costs = "";  // what is lost then
};

std::span<const NetVariable> KnownNetVariables();

/// nullptr if it is not known.
const NetVariable* FindNetVariable(std::string_view name);

/// Whether names that begin so are somebody's whom we know, so that an unknown one is a mistake.
bool IsNetVariable(std::string_view name);

/// The known name that is nearest to an unknown one; empty if none is near.
std::string_view NearestNetVariable(std::string_view name);

}  // namespace ait::inline v0::internal

#endif  // AIT_COMM_NET_VARIABLES_H_

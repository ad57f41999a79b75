// SPDX-License-Identifier: Apache-2.0
#include "comm/net_variables.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

namespace ait::inline v0::internal {
namespace {

using enum NetGrammar;
constexpr auto kMost = INT64_MAX;

// Sources: NCCL 2.28 to 2.30 (NCCL_PARAM and ncclGetEnv in src/), torch 2.11 (c10d), OpenMP 5.2.
constexpr NetVariable kVariables[] = {
    {"GLOO_SOCKET_IFNAME", kInterfaces},
    {"GLOO_SOCKET_FAMILY"},
    {"GLOO_DEVICE_TRANSPORT"},
    {"TP_SOCKET_IFNAME", kInterfaces},
    {"TORCH_GLOO_LAZY_INIT", kFlag},
    {"RANK", kInteger, 0, kMost},
    {"WORLD_SIZE", kInteger, 1, kMost},
    {"LOCAL_RANK", kInteger, 0, kMost},
    {"LOCAL_WORLD_SIZE", kInteger, 1, kMost},
    {"MASTER_ADDR"},
    {"MASTER_PORT", kInteger, 1, 65535},
    {"OMP_NUM_THREADS", kThreads},
    {"OMP_PROC_BIND"},
    {"OMP_PLACES"},
    {"OMP_DYNAMIC"},
    {"OMP_MAX_ACTIVE_LEVELS", kInteger, 0, kMost},
    {"OMP_NESTED"},
    {"OMP_SCHEDULE"},
    {"OMP_STACKSIZE"},
    {"OMP_THREAD_LIMIT", kInteger, 1, kMost},
    {"OMP_WAIT_POLICY"},
    {"OMP_CANCELLATION"},
    {"OMP_DISPLAY_ENV"},
    {"OMP_DISPLAY_AFFINITY"},
    {"OMP_AFFINITY_FORMAT"},
    {"OMP_DEFAULT_DEVICE"},
    {"OMP_MAX_TASK_PRIORITY"},
    {"OMP_TARGET_OFFLOAD"},
    {"OMP_TOOL"},
    {"OMP_TOOL_LIBRARIES"},
    {"OMP_TEAMS_THREAD_LIMIT"},
    {"OMP_NUM_TEAMS"},
    {"OMP_ALLOCATOR"},
    {"MKL_NUM_THREADS", kThreads},
    {"TORCH_DISTRIBUTED_DEBUG", kDistributedDebug},
    {"TORCH_CPP_LOG_LEVEL"},
    {"TORCH_SHOW_CPP_STACKTRACES", kFlag},
    {"TORCH_NCCL_ASYNC_ERROR_HANDLING", kInteger, 0, 3},
    {"TORCH_NCCL_BLOCKING_WAIT", kFlag},
    {"TORCH_NCCL_USE_COMM_NONBLOCKING", kFlag},
    {"TORCH_NCCL_NONBLOCKING_TIMEOUT", kInteger, 0, kMost},
    {"TORCH_NCCL_HIGH_PRIORITY", kFlag},
    {"TORCH_NCCL_AVOID_RECORD_STREAMS", kFlag},
    {"TORCH_NCCL_DUMP_ON_TIMEOUT", kFlag},
    {"TORCH_NCCL_DESYNC_DEBUG", kFlag},
    {"TORCH_NCCL_ENABLE_TIMING", kFlag},
    {"TORCH_NCCL_ENABLE_MONITORING", kFlag},
    {"TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC", kInteger, 0, kMost},
    {"TORCH_NCCL_RETHROW_CUDA_ERRORS", kFlag},
    {"TORCH_NCCL_TRACE_BUFFER_SIZE", kInteger, 0, kMost},
    {"TORCH_NCCL_TRACE_CPP_STACK", kFlag},
    {"TORCH_NCCL_DEBUG_INFO_TEMP_FILE"},
    {"TORCH_NCCL_DEBUG_INFO_PIPE_FILE"},
    {"TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", kInteger, 0, kMost},
    {"TORCH_NCCL_COORD_CHECK_MILSEC", kInteger, 0, kMost},
    {"TORCH_NCCL_LOG_CPP_STACK_ON_UNCLEAN_SHUTDOWN", kFlag},
    {"TORCH_NCCL_CUDA_EVENT_CACHE", kFlag},
    {"TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK", kFlag},
    {"TORCH_NCCL_NAN_CHECK", kFlag},
    {"TORCH_NCCL_PROPAGATE_ERROR", kFlag},
    {"TORCH_NCCL_RANKS_PER_ROOT", kInteger, 1, kMost},
    {"TORCH_FR_BUFFER_SIZE", kInteger, 0, kMost},
    {"TORCH_FR_DUMP_TEMP_FILE"},
    {"TORCHELASTIC_USE_AGENT_STORE"},
    {"TORCHELASTIC_RUN_ID"},
    {"TORCHELASTIC_RESTART_COUNT", kInteger, 0, kMost},
    {"TORCHELASTIC_MAX_RESTARTS", kInteger, 0, kMost},
    {"TORCHELASTIC_ERROR_FILE"},
    {"TORCHELASTIC_ENABLE_FILE_TIMER", kFlag},
    {"TORCHELASTIC_TIMER_FILE"},
    {"TORCHELASTIC_HEALTH_CHECK_PORT", kInteger, 0, 65535},
    {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"},
    {"TORCHELASTIC_SIGNALS_TO_HANDLE"},
    {"NCCL_DEBUG", kDebugLevel},
    {"NCCL_DEBUG_SUBSYS", kSubsystems},
    {"NCCL_DEBUG_FILE"},
    {"NCCL_DEBUG_TIMESTAMP_FORMAT"},
    {"NCCL_DEBUG_TIMESTAMP_LEVELS"},
    {"NCCL_SOCKET_IFNAME", kPrefixes},
    {"NCCL_OOB_NET_IFNAME", kPrefixes},
    {"NCCL_OOB_NET_ENABLE", kInteger, 0, 1},
    {"NCCL_SOCKET_FAMILY"},
    {"NCCL_SOCKET_NTHREADS", kInteger, 1, 16},
    {"NCCL_NSOCKS_PERTHREAD", kInteger, 1, 16},
    {"NCCL_SOCKET_RETRY_CNT", kInteger, 0, kMost},
    {"NCCL_SOCKET_RETRY_SLEEP_MSEC", kInteger, 0, kMost},
    {"NCCL_SOCKET_POLL_TIMEOUT_MSEC", kInteger, 0, kMost},
    {"NCCL_COMM_ID"},
    {"NCCL_COMM_BLOCKING", kInteger, 0, 1},
    {"NCCL_CONF_FILE"},
    {"NCCL_HOSTID"},
    {"NCCL_ALGO", kAlgorithms},
    {"NCCL_PROTO", kProtocols},
    {"NCCL_NTHREADS", kInteger, 0, 1024},
    {"NCCL_LL128_NTHREADS", kInteger, 0, 1024},
    {"NCCL_MIN_NCHANNELS", kInteger, 0, 64},
    {"NCCL_MAX_NCHANNELS", kInteger, 0, 64},
    {"NCCL_MIN_CTAS", kInteger, 0, 64},
    {"NCCL_MAX_CTAS", kInteger, 0, 64},
    {"NCCL_MIN_NRINGS", kInteger, 0, 64},
    {"NCCL_MAX_NRINGS", kInteger, 0, 64},
    {"NCCL_CTA_POLICY", kInteger, 0, kMost},
    {"NCCL_CGA_CLUSTER_SIZE", kInteger, 0, 8},
    {"NCCL_BUFFSIZE", kInteger, 1, kMost},
    {"NCCL_LL_BUFFSIZE", kInteger, 1, kMost},
    {"NCCL_LL128_BUFFSIZE", kInteger, 1, kMost},
    {"NCCL_P2P_NET_CHUNKSIZE", kInteger, 1, kMost},
    {"NCCL_P2P_PCI_CHUNKSIZE", kInteger, 1, kMost},
    {"NCCL_P2P_NVL_CHUNKSIZE", kInteger, 1, kMost},
    {"NCCL_IB_DISABLE", kInteger, 0, 1, 1, "InfiniBand and RoCE: NCCL uses TCP sockets"},
    {"NCCL_IB_HCA", kAdapters},
    {"NCCL_IB_GID_INDEX", kInteger, -1, 255},
    {"NCCL_IB_ROCE_VERSION_NUM", kInteger, 1, 2},
    {"NCCL_IB_ADDR_FAMILY"},
    {"NCCL_IB_ADDR_RANGE"},
    {"NCCL_IB_SL", kInteger, -1, 15},
    {"NCCL_IB_TC", kInteger, -1, 255},
    {"NCCL_IB_FIFO_TC", kInteger, -1, 255},
    {"NCCL_IB_TIMEOUT", kInteger, 0, 31},
    {"NCCL_IB_RETRY_CNT", kInteger, 0, 7},
    {"NCCL_IB_PKEY", kInteger, 0, 65535},
    {"NCCL_IB_USE_INLINE", kInteger, 0, 1},
    {"NCCL_IB_CUDA_SUPPORT", kInteger, 0, 1},
    {"NCCL_IB_QPS_PER_CONNECTION", kInteger, 1, 128},
    {"NCCL_IB_SPLIT_DATA_ON_QPS", kInteger, 0, 1},
    {"NCCL_IB_AR_THRESHOLD", kInteger, 0, kMost},
    {"NCCL_IB_PCI_RELAXED_ORDERING", kInteger, 0, 2},
    {"NCCL_IB_ADAPTIVE_ROUTING", kInteger, -2, 1},
    {"NCCL_IB_MERGE_VFS", kInteger, 0, 1},
    {"NCCL_IB_MERGE_NICS", kInteger, 0, 1},
    {"NCCL_IB_RETURN_ASYNC_EVENTS", kInteger, 0, 1},
    {"NCCL_IB_ECE_ENABLE", kInteger, 0, 1},
    {"NCCL_IB_DATA_DIRECT", kInteger, 0, 2},
    {"NCCL_IB_WARN_RAIL_LOCAL", kInteger, 0, 1},
    {"NCCL_IB_OOO_RQ", kInteger, 0, 1},
    {"NCCL_NET"},
    {"NCCL_NET_PLUGIN"},
    {"NCCL_TUNER_PLUGIN"},
    {"NCCL_PROFILER_PLUGIN"},
    {"NCCL_ENV_PLUGIN"},
    {"NCCL_GIN_PLUGIN"},
    {"NCCL_TUNER_CONFIG_FILE"},
    {"NCCL_NET_GDR_LEVEL"},
    {"NCCL_NET_GDR_READ", kInteger, -2, 1},
    {"NCCL_NET_GDR_C2C", kInteger, 0, 1},
    {"NCCL_GDRCOPY_ENABLE", kInteger, 0, 1},
    {"NCCL_GDR_FLUSH_DISABLE", kInteger, 0, 1},
    {"NCCL_NET_SHARED_BUFFERS", kInteger, -2, 1},
    {"NCCL_NET_SHARED_COMMS", kInteger, 0, 1},
    {"NCCL_NET_DISABLE_INTRA", kInteger, 0, 1},
    {"NCCL_NET_FORCE_MERGE"},
    {"NCCL_NET_MERGE_LEVEL"},
    {"NCCL_NET_OVERHEAD", kInteger, -2, kMost},
    {"NCCL_P2P_DISABLE", kInteger, 0, 1, 1, "copies between GPUs of a host (NVLink, PCIe)"},
    {"NCCL_P2P_LEVEL"},
    {"NCCL_P2P_DIRECT_DISABLE", kInteger, 0, 1, 1, "direct access between GPUs of one process"},
    {"NCCL_P2P_READ_ENABLE", kInteger, -2, 1},
    {"NCCL_P2P_USE_CUDA_MEMCPY", kInteger, 0, 1},
    {"NCCL_SHM_DISABLE", kInteger, 0, 1, 1, "shared memory between processes of a host"},
    {"NCCL_SHM_USE_CUDA_MEMCPY", kInteger, 0, 1},
    {"NCCL_SHM_LOCALITY", kInteger, 1, 2},
    {"NCCL_CUMEM_ENABLE", kInteger, -2, 1, 0, "registered buffers and NVLink SHARP"},
    {"NCCL_CUMEM_HOST_ENABLE", kInteger, -2, 1},
    {"NCCL_NVLS_ENABLE", kInteger, 0, 2, 0, "NVLink SHARP: reductions in the switch"},
    {"NCCL_NVLS_CHUNKSIZE", kInteger, 1, kMost},
    {"NCCL_NVLS_NCHANNELS", kInteger, 1, kMost},
    {"NCCL_MNNVL_ENABLE", kInteger, 0, 2},
    {"NCCL_NVB_DISABLE", kInteger, 0, 1, 1, "paths over NVLink of another GPU"},
    {"NCCL_PXN_DISABLE", kInteger, 0, 1, 1, "network adapters near another GPU of the host"},
    {"NCCL_P2P_PXN_LEVEL", kInteger, 0, 2},
    {"NCCL_CROSS_NIC", kInteger, 0, 2},
    {"NCCL_COLLNET_ENABLE", kInteger, 0, 1},
    {"NCCL_COLLNET_NODE_THRESHOLD", kInteger, 0, kMost},
    {"NCCL_SHARP_DISABLE", kInteger, 0, 1},
    {"NCCL_TOPO_FILE"},
    {"NCCL_TOPO_DUMP_FILE"},
    {"NCCL_TOPO_DUMP_FILE_RANK", kInteger, 0, kMost},
    {"NCCL_GRAPH_FILE"},
    {"NCCL_GRAPH_DUMP_FILE"},
    {"NCCL_GRAPH_DUMP_FILE_RANK", kInteger, 0, kMost},
    {"NCCL_GRAPH_REGISTER", kInteger, 0, 1},
    {"NCCL_GRAPH_MIXING_SUPPORT", kInteger, 0, 1},
    {"NCCL_GRAPH_HELPER_DISABLE", kInteger, 0, 1},
    {"NCCL_GRAPH_STREAM_ORDERING", kInteger, 0, 1},
    {"NCCL_LOCAL_REGISTER", kInteger, 0, 1},
    {"NCCL_WIN_ENABLE", kInteger, 0, 1},
    {"NCCL_WIN_STRIDE", kInteger, -1, kMost},
    {"NCCL_SYM_GIN_KERNELS_ENABLE", kInteger, 0, 1},
    {"NCCL_SYM_KERNEL"},
    {"NCCL_SYM_CTAS", kInteger, 0, 64},
    {"NCCL_LAUNCH_MODE"},
    {"NCCL_LAUNCH_ORDER_IMPLICIT", kInteger, 0, 1},
    {"NCCL_LAUNCH_RACE_FATAL", kInteger, 0, 1},
    {"NCCL_SET_THREAD_NAME", kInteger, 0, 1},
    {"NCCL_SET_STACK_SIZE", kInteger, 0, 1},
    {"NCCL_SET_CPU_STACK_SIZE", kInteger, 0, kMost},
    {"NCCL_IGNORE_CPU_AFFINITY", kInteger, 0, 1},
    {"NCCL_IGNORE_DISABLED_P2P", kInteger, 0, 2},
    {"NCCL_CHECK_POINTERS", kInteger, 0, 1, 1, "time: every pointer of every call is checked"},
    {"NCCL_CHECKS_DISABLE", kInteger, 0, 1, 1, "the checks of arguments, and with them messages"},
    {"NCCL_DISABLE_CHECKS", kInteger, 0, 1},
    {"NCCL_WARN_ENABLE_DEBUG_INFO", kInteger, 0, 1},
    {"NCCL_UID_STAGGER_RATE", kInteger, 0, kMost},
    {"NCCL_UID_STAGGER_THRESHOLD", kInteger, 0, kMost},
    {"NCCL_PROXY_APPEND_BATCH_SIZE", kInteger, 0, kMost},
    {"NCCL_PROGRESS_APPENDOP_FREQ", kInteger, 0, kMost},
    {"NCCL_PROXY_DUMP_SIGNAL", kInteger, -1, 64},
    {"NCCL_PROXY_CPUSET"},
    {"NCCL_CREATE_THREAD_CONTEXT", kInteger, 0, 1},
    {"NCCL_CONNECT_ROUND_MAX_PEERS", kInteger, 1, kMost},
    {"NCCL_COMM_SPLIT_SHARE_RESOURCES", kInteger, -2, 1},
    {"NCCL_COMM_SHRINK_SHARE_RESOURCES", kInteger, -2, 1},
    {"NCCL_COMM_NAME"},
    {"NCCL_RUNTIME_CONNECT", kInteger, 0, 1},
    {"NCCL_RAS_ENABLE", kInteger, 0, 1, 0, "the answers of ncclras about a run that hangs"},
    {"NCCL_RAS_ADDR"},
    {"NCCL_RAS_TIMEOUT_FACTOR", kInteger, 1, kMost},
    {"NCCL_NVTX_DISABLE"},
    {"NCCL_DMABUF_ENABLE", kInteger, 0, 1, 0, "GPUDirect through dma-buf"},
    {"NCCL_L1_SHARED_MEMORY_CARVEOUT", kInteger, 0, 100},
    {"NCCL_MAX_P2P_NCHANNELS", kInteger, 1, 64},
    {"NCCL_MIN_P2P_NCHANNELS", kInteger, 1, 64},
    {"NCCL_NCHANNELS_PER_NET_PEER", kInteger, -1, 64},
    {"NCCL_NCHANNELS_PER_PEER", kInteger, -1, 64},
    {"NCCL_WORK_FIFO_BYTES", kInteger, 1, kMost},
    {"NCCL_WORK_ARGS_BYTES", kInteger, 0, kMost},
    {"NCCL_THREAD_THRESHOLDS"},
    {"NCCL_PAT_ENABLE", kInteger, -2, 2},
    {"NCCL_SINGLE_RING_THRESHOLD", kInteger, 0, kMost},
    {"NCCL_RINGS"},
    {"NCCL_TREES"},
    {"NCCL_SINGLE_PROC_MEM_REG_ENABLE", kInteger, 0, 1},
    {"NCCL_ALLOC_P2P_NET_LL_BUFFERS", kInteger, 0, 1},
    {"NCCL_P2P_LL_THRESHOLD", kInteger, 0, kMost},
    {"NCCL_MEM_SYNC_DOMAIN", kInteger, 0, 1},
    {"NCCL_NETDEVS_POLICY"},
};

constexpr std::string_view kFamilies[] = {"NCCL_", "GLOO_", "OMP_", "TORCH_NCCL_", "TORCHELASTIC_"};

std::size_t Distance(std::string_view a, std::string_view b) {  // Levenshtein 1966
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0u);
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t change = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({change, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

}  // namespace

std::span<const NetVariable> KnownNetVariables() { return kVariables; }

const NetVariable* FindNetVariable(std::string_view name) {
  const auto found = std::find_if(std::begin(kVariables), std::end(kVariables),
                                  [name](const NetVariable& v) { return v.name == name; });
  return found == std::end(kVariables) ? nullptr : &*found;
}

bool IsNetVariable(std::string_view name) {
  return FindNetVariable(name) != nullptr ||
         std::any_of(std::begin(kFamilies), std::end(kFamilies),
                     [name](std::string_view prefix) { return name.starts_with(prefix); });
}

std::string_view NearestNetVariable(std::string_view name) {
  std::string_view nearest;
  std::size_t least = std::max<std::size_t>(2, name.size() / 4) + 1;
  for (const NetVariable& variable : kVariables) {
    const std::size_t distance = Distance(name, variable.name);
    if (distance < least) {
      least = distance;
      nearest = variable.name;
    }
  }
  return nearest;
}

}  // namespace ait::inline v0::internal

// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_BASE_ENV_H_
#define AIT_BASE_ENV_H_

// Every environment variable that ait reads: one struct, one field each.
//
// The library reads the environment only through this struct, and only where an API says so
// (`World::FromEnvironment`). A field is the raw text; whoever uses it parses it and names the
// variable in its error. An unset variable is nullopt; a variable set to the empty text counts as
// unset.
//
//   Env env = Env::FromProcess();
//   env.rank = "0";                       // a test, or a host program that knows better
//   auto world = World::FromEnvironment({.env = env});

#include <functional>
#include <optional>
#include <string>

namespace ait::inline v0 {

struct Env {
  using Value = std::optional<std::string>;

  // Launch: set by `ait run`, torchrun, or by hand. All of RANK, WORLD_SIZE, MASTER_ADDR and
  // MASTER_PORT, or none of them.
  Value rank;        // RANK: 0 ≤ rank < WORLD_SIZE
  Value world_size;  // WORLD_SIZE: ≥ 1
  Value local_rank;  // LOCAL_RANK: rank among the processes of this host; default RANK on one host
  Value local_world_size;  // LOCAL_WORLD_SIZE: processes of this host; default WORLD_SIZE
  Value master_addr;       // MASTER_ADDR: name or address where the store is served
  Value master_port;       // MASTER_PORT: 1 to 65535

  // torchrun.
  Value torchelastic_use_agent_store;  // TORCHELASTIC_USE_AGENT_STORE: "True" if the agent serves
                                       // the store
  Value torchelastic_run_id;           // TORCHELASTIC_RUN_ID: text, same on all ranks of a run
  Value torchelastic_restart_count;    // TORCHELASTIC_RESTART_COUNT: ≥ 0

  // `ait run`.
  Value
      ait_listen_fd;  // AIT_LISTEN_FD: rank 0 only, an inherited socket that listens on MASTER_PORT
  Value ait_run_id;   // AIT_RUN_ID: text, same on all ranks of a run, new for every attempt
  Value ait_parent_pid;  // AIT_PARENT_PID: the launcher; a rank ends if no such process is left
                         // when it joins

  Value ait_flight_directory;  // AIT_FLIGHT_DIRECTORY: where a rank writes its last operations when
                               // one fails; any launcher

  // Network and computation.
  Value gloo_socket_ifname;  // GLOO_SOCKET_IFNAME: interface for Gloo, exact name; default by route
  Value omp_num_threads;     // OMP_NUM_THREADS: ≥ 1, or OpenMP's list by level ("4,2")
  Value ait_simd;  // AIT_SIMD: "baseline", "avx2" or "avx512" caps run-time dispatch; default best

  /// Reads the environment of this process. Not safe while another thread calls setenv.
  static Env FromProcess();

  /// Reads from any source; `lookup` returns nullopt for an unset variable.
  static Env From(const std::function<Value(const char* name)>& lookup);

  /// Calls `visit` for every variable, in the order above, with its name and value.
  void ForEach(const std::function<void(const char* name, const Value& value)>& visit) const;
};

}  // namespace ait::inline v0

#endif  // AIT_BASE_ENV_H_

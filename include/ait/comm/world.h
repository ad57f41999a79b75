// SPDX-License-Identifier: Apache-2.0
#ifndef AIT_COMM_WORLD_H_
#define AIT_COMM_WORLD_H_

// `World`: this process's place in the run, and the communicator of all ranks.
//
//   auto world = World::FromEnvironment({.transport = Gloo()});      // ait/tensor/gloo.h
//   if (!world.ok()) return Report(world.status());
//   std::shared_ptr<Communicator> all = (*world)->communicator();
//
// The environment says how the process was launched: by `ait run`, torchrun, Open MPI's mpirun,
// mpiexec of MPICH and its kin, Slurm's srun, Kubernetes, Kubeflow, by hand with RANK, WORLD_SIZE,
// MASTER_ADDR and MASTER_PORT, or alone. docs/launch.md has the order in which they are looked for;
// `WorldOptions::launch` and AIT_LAUNCHER decide it. Variables that contradict each other or miss
// are one error that lists all values seen, and `Describe` tells where each value came from.

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ait/base/env.h"
#include "ait/base/log.h"
#include "ait/base/shard.h"
#include "ait/base/status.h"
#include "ait/base/types.h"
#include "ait/comm/communicator.h"

namespace ait::inline v0 {

class Store;
class TcpStore;
class Transport;

/// Who launched this process.
enum class LaunchedBy {
  kNobody,
  kArguments,  // WorldOptions::launch
  kHand,
  kAitRun,
  kTorchrun,
  kOpenMpi,
  kPmi,  // mpiexec of MPICH (Hydra), Intel MPI, Cray
  kPmix,
  kSlurm,
  kKubernetes,
  kKubeflow,
};
std::string_view Name(LaunchedBy launched_by);

/// One value of a launch, and why it is that.
struct LaunchDecision {
  std::string what;       // "rank"
  std::string value;      // "1 of 4"
  std::string source;     // "SLURM_PROCID, SLURM_STEP_NUM_TASKS"
  std::string overruled;  // "SLURM_NTASKS=8": what says something else; empty if nothing does
};

/// What the environment says, checked.
struct LaunchInfo {
  LaunchedBy launched_by = LaunchedBy::kNobody;
  Rank rank;
  WorldSize size{1};
  Rank local_rank;
  WorldSize local_size{1};
  bool local_is_given = false;  // else World finds the two; till then all ranks are on one host
  int host_count = 0;           // found by World; 0 before
  std::string master_address;   // empty for one process alone; "unix:NAME": a socket of one host
  std::uint16_t master_port = 0;
  std::vector<std::uint16_t> other_ports;  // where rank 0 is if another program has master_port
  bool agent_store = false;                // torchrun's agent serves MASTER_PORT
  int listen_fd = -1;                      // inherited listening socket of rank 0, or -1
  int restart_count = 0;                   // torchrun, Slurm: attempts before this one
  std::string run_id;          // same on all ranks, new for every attempt as far as it is known
  std::string interface_name;  // network interface asked for; empty: by route
  std::vector<LaunchDecision> decisions;

  /// Reads and checks the variables; looks at nothing else.
  /// **Errors.** InvalidArgument with every conflict and gap, and all values seen.
  static StatusOr<LaunchInfo> FromEnv(const Env& env);
};

/// One host of a run: those of its ranks that share a kernel, a network and a PID namespace.
struct WorldHost {
  std::string name;
  std::string address;  // where the other hosts reach it
  std::vector<Rank> ranks;
};

/// How processes of different address spaces reach each other; made by `Gloo()` of
/// ait/tensor/gloo.h.
class TransportProvider {
 public:
  virtual ~TransportProvider() = default;
  virtual std::string_view name() const = 0;

  /// Joins the store that torchrun's agent serves, as a client.
  virtual StatusOr<std::unique_ptr<Store>> JoinAgentStore(const LaunchInfo& launch,
                                                          Deadline deadline) = 0;

  /// **Collective.** Connects all ranks. The transport keeps the store as long as it needs it.
  virtual StatusOr<std::unique_ptr<Transport>> Connect(const LaunchInfo& launch,
                                                       std::shared_ptr<TcpStore> store,
                                                       Deadline deadline) = 0;
};

enum class LogDecisions { kNo, kRankZero, kEveryRank };

struct WorldOptions {
  /// Needed as soon as there is more than one process.
  std::shared_ptr<TransportProvider> transport;
  /// Taken instead of the environment of the process.
  std::optional<Env> env;
  /// Taken instead of what the environment says: `rank`, `size` and where rank 0 serves at least.
  std::optional<LaunchInfo> launch;
  /// Until all ranks have joined; and again, until they are connected.
  std::chrono::milliseconds join_timeout = std::chrono::minutes(1);
  /// With a flight recorder for the process; AIT_FLIGHT_DIRECTORY is where it writes when an
  /// operation fails. Hang reports go to `log`, and into the errors of deadlines.
  CommunicatorOptions communicator;
  LogSink* log = nullptr;
  /// Whether `log` gets the lines of `Describe`; AIT_DESCRIBE decides if it is set.
  LogDecisions decisions = LogDecisions::kNo;
};

class World {
 public:
  /// **Collective. Blocks.** Until all ranks of the run have joined.
  /// **Errors.** InvalidArgument: the environment is contradictory, or a transport is needed and
  /// missing; DeadlineExceeded: names the ranks that did not come; FailedPrecondition: port in use,
  /// or ranks of other hosts cannot reach this one's address.
  static StatusOr<std::unique_ptr<World>> FromEnvironment(WorldOptions options = {});

  /// Leaves the run: says goodbye to the others, as soon as the communicators made from this world
  /// are gone too. They must not be used after.
  ~World();

  Rank rank() const;
  WorldSize size() const;
  Rank local_rank() const;
  WorldSize local_size() const;
  const LaunchInfo& launch() const;

  /// The communicator of all ranks.
  const std::shared_ptr<Communicator>& communicator() const;

  /// This rank's share of a dataset.
  Shard shard() const;

  /// The control plane; nullptr for one process alone.
  TcpStore* store() const;

  /// The hosts of the run, in the order of their first ranks; found by the ranks themselves.
  const std::vector<WorldHost>& hosts() const;

  /// How many threads this rank should compute with: OMP_NUM_THREADS, else the CPUs it may use,
  /// divided by the ranks of its host that may use the same ones; at least 1.
  int threads() const;

  /// The decision table, for people: each value, where it came from, and what it overruled.
  std::string Describe() const;
  /// True if AIT_DESCRIBE asks this rank for it. The library itself prints nothing.
  bool asked_to_describe() const;

 private:
  class Impl;
  explicit World(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace ait::inline v0

#endif  // AIT_COMM_WORLD_H_

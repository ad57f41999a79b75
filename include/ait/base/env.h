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

  // Launch: set by `ait run`, torchrun, or by hand. By hand, all of RANK, WORLD_SIZE, MASTER_ADDR
  // and MASTER_PORT; where a launcher below gives the ranks, MASTER_ADDR and MASTER_PORT at most.
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
  Value torchelastic_error_file;       // TORCHELASTIC_ERROR_FILE: path, see launch/error_file.h

  // `ait run`.
  Value
      ait_listen_fd;  // AIT_LISTEN_FD: rank 0 only, an inherited socket that listens on MASTER_PORT
  Value ait_run_id;   // AIT_RUN_ID: text, same on all ranks of a run, new for every attempt
  Value ait_parent_pid;  // AIT_PARENT_PID: the launcher; a rank ends if no such process is left
                         // when it joins
  Value ait_layout;      // AIT_LAYOUT: CPUs and memory of the rank, see topology/rank_layout.h

  Value ait_flight_directory;  // AIT_FLIGHT_DIRECTORY: where a rank writes its last operations when
                               // one fails; any launcher

  // For any launcher.
  Value ait_launcher;  // AIT_LAUNCHER: whose variables hold, where several are set: "hand",
                       // "torchrun", "openmpi", "pmi", "pmix", "slurm", "kubernetes", "kubeflow",
                       // or "alone"; default by the order of docs/launch.md
  Value ait_attempt;   // AIT_ATTEMPT: text, same on all ranks of an attempt, new for every attempt;
                       // ranks of different attempts refuse each other
  Value ait_describe;  // AIT_DESCRIBE: "1": rank 0 tells how it was launched, "all": every rank;
                       // "0": none, the default

  // Open MPI's mpirun, and PMIx.
  Value ompi_comm_world_rank;        // OMPI_COMM_WORLD_RANK
  Value ompi_comm_world_size;        // OMPI_COMM_WORLD_SIZE
  Value ompi_comm_world_local_rank;  // OMPI_COMM_WORLD_LOCAL_RANK
  Value ompi_comm_world_local_size;  // OMPI_COMM_WORLD_LOCAL_SIZE
  Value ompi_job_key;    // OMPI_MCA_orte_precondition_transports: random, the same on all ranks
  Value pmix_rank;       // PMIX_RANK; the size is not told
  Value pmix_namespace;  // PMIX_NAMESPACE: the job

  // mpiexec of MPICH (Hydra), Intel MPI, Cray.
  Value pmi_rank;         // PMI_RANK
  Value pmi_size;         // PMI_SIZE
  Value pmi_local_rank;   // PMI_LOCAL_RANK (Cray)
  Value pmi_local_size;   // PMI_LOCAL_SIZE (Cray)
  Value mpi_localrankid;  // MPI_LOCALRANKID (Hydra)
  Value mpi_localnranks;  // MPI_LOCALNRANKS (Hydra)
  Value pmi_jobid;        // PMI_JOBID: of Slurm's own PMI "job.step"
  Value pmi_fd;           // PMI_FD: socket to the launcher, whose process names the job

  // Slurm. A process is a task only with SLURM_STEP_ID; variables of the step come first.
  Value slurm_job_id;               // SLURM_JOB_ID
  Value slurm_step_id;              // SLURM_STEP_ID
  Value slurm_procid;               // SLURM_PROCID
  Value slurm_localid;              // SLURM_LOCALID
  Value slurm_nodeid;               // SLURM_NODEID
  Value slurm_step_num_tasks;       // SLURM_STEP_NUM_TASKS
  Value slurm_step_num_nodes;       // SLURM_STEP_NUM_NODES
  Value slurm_step_nodelist;        // SLURM_STEP_NODELIST: "n[0-3,7],m2"
  Value slurm_step_tasks_per_node;  // SLURM_STEP_TASKS_PER_NODE: "2(x3),1"
  Value slurm_ntasks;               // SLURM_NTASKS: of the job
  Value slurm_restart_count;        // SLURM_RESTART_COUNT: requeues before this run

  // Kubernetes: Indexed Job and JobSet; Kubeflow Trainer.
  Value job_completion_index;  // JOB_COMPLETION_INDEX: the rank; the size is WORLD_SIZE
  Value pet_nnodes;            // PET_NNODES: pods
  Value pet_nproc_per_node;  // PET_NPROC_PER_NODE: processes a pod; a number, "auto", "cpu", "gpu"
  Value pet_node_rank;       // PET_NODE_RANK
  Value pet_master_addr;     // PET_MASTER_ADDR
  Value pet_master_port;     // PET_MASTER_PORT

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

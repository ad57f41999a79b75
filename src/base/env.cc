// SPDX-License-Identifier: Apache-2.0
#include "ait/base/env.h"

#include <cstdlib>

namespace ait::inline v0 {
namespace {

struct Field {
  const char* name;
  Env::Value Env::* member;
};

constexpr Field kFields[] = {
    {"RANK", &Env::rank},
    {"WORLD_SIZE", &Env::world_size},
    {"LOCAL_RANK", &Env::local_rank},
    {"LOCAL_WORLD_SIZE", &Env::local_world_size},
    {"MASTER_ADDR", &Env::master_addr},
    {"MASTER_PORT", &Env::master_port},
    {"TORCHELASTIC_USE_AGENT_STORE", &Env::torchelastic_use_agent_store},
    {"TORCHELASTIC_RUN_ID", &Env::torchelastic_run_id},
    {"TORCHELASTIC_RESTART_COUNT", &Env::torchelastic_restart_count},
    {"TORCHELASTIC_ERROR_FILE", &Env::torchelastic_error_file},
    {"AIT_LISTEN_FD", &Env::ait_listen_fd},
    {"AIT_RUN_ID", &Env::ait_run_id},
    {"AIT_PARENT_PID", &Env::ait_parent_pid},
    {"AIT_LAYOUT", &Env::ait_layout},
    {"AIT_FLIGHT_DIRECTORY", &Env::ait_flight_directory},
    {"AIT_LAUNCHER", &Env::ait_launcher},
    {"AIT_ATTEMPT", &Env::ait_attempt},
    {"AIT_DESCRIBE", &Env::ait_describe},
    {"OMPI_COMM_WORLD_RANK", &Env::ompi_comm_world_rank},
    {"OMPI_COMM_WORLD_SIZE", &Env::ompi_comm_world_size},
    {"OMPI_COMM_WORLD_LOCAL_RANK", &Env::ompi_comm_world_local_rank},
    {"OMPI_COMM_WORLD_LOCAL_SIZE", &Env::ompi_comm_world_local_size},
    {"OMPI_MCA_orte_precondition_transports", &Env::ompi_job_key},
    {"PMIX_RANK", &Env::pmix_rank},
    {"PMIX_NAMESPACE", &Env::pmix_namespace},
    {"PMI_RANK", &Env::pmi_rank},
    {"PMI_SIZE", &Env::pmi_size},
    {"PMI_LOCAL_RANK", &Env::pmi_local_rank},
    {"PMI_LOCAL_SIZE", &Env::pmi_local_size},
    {"MPI_LOCALRANKID", &Env::mpi_localrankid},
    {"MPI_LOCALNRANKS", &Env::mpi_localnranks},
    {"PMI_JOBID", &Env::pmi_jobid},
    {"PMI_FD", &Env::pmi_fd},
    {"SLURM_JOB_ID", &Env::slurm_job_id},
    {"SLURM_STEP_ID", &Env::slurm_step_id},
    {"SLURM_PROCID", &Env::slurm_procid},
    {"SLURM_LOCALID", &Env::slurm_localid},
    {"SLURM_NODEID", &Env::slurm_nodeid},
    {"SLURM_STEP_NUM_TASKS", &Env::slurm_step_num_tasks},
    {"SLURM_STEP_NUM_NODES", &Env::slurm_step_num_nodes},
    {"SLURM_STEP_NODELIST", &Env::slurm_step_nodelist},
    {"SLURM_STEP_TASKS_PER_NODE", &Env::slurm_step_tasks_per_node},
    {"SLURM_NTASKS", &Env::slurm_ntasks},
    {"SLURM_RESTART_COUNT", &Env::slurm_restart_count},
    {"JOB_COMPLETION_INDEX", &Env::job_completion_index},
    {"PET_NNODES", &Env::pet_nnodes},
    {"PET_NPROC_PER_NODE", &Env::pet_nproc_per_node},
    {"PET_NODE_RANK", &Env::pet_node_rank},
    {"PET_MASTER_ADDR", &Env::pet_master_addr},
    {"PET_MASTER_PORT", &Env::pet_master_port},
    {"GLOO_SOCKET_IFNAME", &Env::gloo_socket_ifname},
    {"OMP_NUM_THREADS", &Env::omp_num_threads},
    {"AIT_SIMD", &Env::ait_simd},
};

}  // namespace

Env Env::FromProcess() {
  return From([](const char* name) -> Value {
    const char* value = std::getenv(name);
    return value == nullptr ? Value() : Value(value);
  });
}

Env Env::From(const std::function<Value(const char* name)>& lookup) {
  Env env;
  for (const Field& field : kFields) {
    Value value = lookup(field.name);
    if (value && !value->empty()) env.*field.member = std::move(value);
  }
  return env;
}

void Env::ForEach(const std::function<void(const char* name, const Value& value)>& visit) const {
  for (const Field& field : kFields) visit(field.name, this->*field.member);
}

}  // namespace ait::inline v0

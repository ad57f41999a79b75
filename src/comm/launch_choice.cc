// SPDX-License-Identifier: Apache-2.0
#include "comm/launch_choice.h"

#include <algorithm>
#include <optional>

namespace ait::inline v0::internal {
namespace {

struct Launcher {
  LaunchedBy launched_by;
  const char* setting;  // of AIT_LAUNCHER
};
// In the order in which they are looked for.
constexpr Launcher kLaunchers[] = {{LaunchedBy::kAitRun, "ait-run"},
                                   {LaunchedBy::kTorchrun, "torchrun"},
                                   {LaunchedBy::kHand, "hand"},
                                   {LaunchedBy::kOpenMpi, "openmpi"},
                                   {LaunchedBy::kPmi, "pmi"},
                                   {LaunchedBy::kPmix, "pmix"},
                                   {LaunchedBy::kSlurm, "slurm"},
                                   {LaunchedBy::kKubeflow, "kubeflow"},
                                   {LaunchedBy::kKubernetes, "kubernetes"}};

/// Slurm speaks PMI and PMIx to its tasks itself; else another launcher runs inside its step.
bool PmiIsOfSlurm(const Env& env) {
  return env.slurm_job_id && env.slurm_step_id &&
         env.pmi_jobid == StrCat(*env.slurm_job_id, ".", *env.slurm_step_id);
}
bool PmixIsOfSlurm(const Env& env) {
  return env.pmix_namespace && env.pmix_namespace->starts_with("slurm.pmix.");
}

/// The variable by which a launcher is known, if it is set.
Variable ClaimOf(LaunchedBy launched_by, const Env& env) {
  switch (launched_by) {
    case LaunchedBy::kAitRun:
      return FirstOf(
          {"AIT_RUN_ID", env.ait_run_id},
          FirstOf({"AIT_LISTEN_FD", env.ait_listen_fd}, {"AIT_PARENT_PID", env.ait_parent_pid}));
    case LaunchedBy::kTorchrun:
      return {"TORCHELASTIC_RUN_ID", env.torchelastic_run_id};
    case LaunchedBy::kHand:
      return env.rank && env.world_size ? Variable("RANK", env.rank) : Variable();
    case LaunchedBy::kOpenMpi:
      return {"OMPI_COMM_WORLD_RANK", env.ompi_comm_world_rank};
    case LaunchedBy::kPmi:
      return PmiIsOfSlurm(env) ? Variable() : Variable("PMI_RANK", env.pmi_rank);
    case LaunchedBy::kPmix:
      return PmixIsOfSlurm(env) ? Variable() : Variable("PMIX_RANK", env.pmix_rank);
    case LaunchedBy::kSlurm:
      return env.slurm_step_id && env.slurm_procid ? Variable("SLURM_STEP_ID", env.slurm_step_id)
                                                   : Variable();
    case LaunchedBy::kKubeflow:
      return FirstOf({"PET_NODE_RANK", env.pet_node_rank}, {"PET_NNODES", env.pet_nnodes});
    case LaunchedBy::kKubernetes:
      return {"JOB_COMPLETION_INDEX", env.job_completion_index};
    default:
      return {};
  }
}

/// Any of the variables of a launch by hand: half of it is an error, not one process alone.
Variable HalfByHand(const Env& env) {
  for (const Variable& variable :
       {Variable("RANK", env.rank), Variable("WORLD_SIZE", env.world_size),
        Variable("LOCAL_RANK", env.local_rank), Variable("LOCAL_WORLD_SIZE", env.local_world_size),
        Variable("MASTER_ADDR", env.master_addr), Variable("MASTER_PORT", env.master_port)}) {
    if (variable) return variable;
  }
  return {};
}

/// RANK and mpirun's rank both mean this process, so they cannot both be right if they differ.
void CheckByHand(const Env& env, LaunchReader& reader) {
  const PlaceVariables hand = PlaceOf(LaunchedBy::kHand, env);
  for (const auto& [launched_by, setting] :
       {Launcher{LaunchedBy::kOpenMpi, "openmpi"}, Launcher{LaunchedBy::kPmi, "pmi"}}) {
    if (!ClaimOf(launched_by, env)) continue;
    const PlaceVariables other = PlaceOf(launched_by, env);
    if (other.rank.text() == hand.rank.text() &&
        (!other.size || other.size.text() == hand.size.text())) {
      continue;
    }
    reader.Problem(Show({hand.rank, hand.size}), " and ", Show({other.rank, other.size}),
                   " contradict each other; unset one pair, or say which holds: AIT_LAUNCHER=hand ",
                   "or AIT_LAUNCHER=", setting);
  }
}

std::optional<LaunchedBy> Setting(const std::string& text) {
  if (text == "alone") return LaunchedBy::kNobody;
  for (const Launcher& launcher : kLaunchers) {
    if (text == launcher.setting) return launcher.launched_by;
  }
  return std::nullopt;
}

}  // namespace

LaunchChoice ChooseLauncher(const Env& env, LaunchReader& reader) {
  LaunchChoice choice;
  const auto choose = [&](LaunchedBy launched_by, std::string because) {
    choice.launched_by = launched_by;
    choice.because = std::move(because);
  };
  if (env.ait_launcher) {
    if (const auto setting = Setting(*env.ait_launcher)) {
      choose(*setting, "AIT_LAUNCHER");
    } else {
      reader.Problem("AIT_LAUNCHER is none of alone, hand, ait-run, torchrun, openmpi, pmi, pmix, ",
                     "slurm, kubeflow, kubernetes");
    }
  } else {
    for (const Launcher& launcher : kLaunchers) {
      const Variable claim = ClaimOf(launcher.launched_by, env);
      if (!claim) continue;
      choose(launcher.launched_by, claim.name());
      break;
    }
    if (choice.because.empty()) {
      if (const Variable half = HalfByHand(env)) choose(LaunchedBy::kHand, half.name());
    }
    if (choice.launched_by == LaunchedBy::kHand && env.rank && env.world_size) {
      CheckByHand(env, reader);
    }
  }
  std::vector<Variable> overruled;
  for (const Launcher& launcher : kLaunchers) {
    const Variable claim = ClaimOf(launcher.launched_by, env);
    // `ait run` and torchrun set RANK themselves, mpirun PMIX_RANK.
    const bool is_own =
        launcher.launched_by == choice.launched_by ||
        (launcher.launched_by == LaunchedBy::kHand &&
         (choice.launched_by == LaunchedBy::kAitRun ||
          choice.launched_by == LaunchedBy::kTorchrun)) ||
        (launcher.launched_by == LaunchedBy::kPmix && choice.launched_by == LaunchedBy::kOpenMpi);
    if (claim && !is_own) overruled.push_back(claim);
  }
  choice.overruled = Show(overruled);
  return choice;
}

PlaceVariables PlaceOf(LaunchedBy launched_by, const Env& env) {
  switch (launched_by) {
    case LaunchedBy::kOpenMpi:
      return {{"OMPI_COMM_WORLD_RANK", env.ompi_comm_world_rank},
              {"OMPI_COMM_WORLD_SIZE", env.ompi_comm_world_size},
              {"OMPI_COMM_WORLD_LOCAL_RANK", env.ompi_comm_world_local_rank},
              {"OMPI_COMM_WORLD_LOCAL_SIZE", env.ompi_comm_world_local_size}};
    case LaunchedBy::kPmi:
      return {
          {"PMI_RANK", env.pmi_rank},
          {"PMI_SIZE", env.pmi_size},
          FirstOf({"MPI_LOCALRANKID", env.mpi_localrankid}, {"PMI_LOCAL_RANK", env.pmi_local_rank}),
          FirstOf({"MPI_LOCALNRANKS", env.mpi_localnranks},
                  {"PMI_LOCAL_SIZE", env.pmi_local_size})};
    case LaunchedBy::kPmix:
      return {{"PMIX_RANK", env.pmix_rank},
              {"WORLD_SIZE", env.world_size},
              {"LOCAL_RANK", env.local_rank},
              {"LOCAL_WORLD_SIZE", env.local_world_size}};
    case LaunchedBy::kSlurm:
      return {{"SLURM_PROCID", env.slurm_procid},
              FirstOf({"SLURM_STEP_NUM_TASKS", env.slurm_step_num_tasks},
                      {"SLURM_NTASKS", env.slurm_ntasks}),
              {"SLURM_LOCALID", env.slurm_localid},
              {}};
    case LaunchedBy::kKubeflow:
      return {{"PET_NODE_RANK", env.pet_node_rank}, {"PET_NNODES", env.pet_nnodes}, {}, {}};
    case LaunchedBy::kKubernetes:
      return {{"JOB_COMPLETION_INDEX", env.job_completion_index},
              {"WORLD_SIZE", env.world_size},
              {},
              {}};
    default:
      return {{"RANK", env.rank},
              {"WORLD_SIZE", env.world_size},
              {"LOCAL_RANK", env.local_rank},
              {"LOCAL_WORLD_SIZE", env.local_world_size}};
  }
}

std::vector<Variable> AllOf(Variable PlaceVariables::* quantity, const Env& env) {
  std::vector<Variable> all;
  const auto add = [&](const Variable& variable) {
    const bool is_new = std::none_of(all.begin(), all.end(), [&](const Variable& known) {
      return std::string_view(known.name()) == variable.name();
    });
    if (variable && is_new) all.push_back(variable);
  };
  for (const Launcher& launcher : kLaunchers) add(PlaceOf(launcher.launched_by, env).*quantity);
  if (quantity == &PlaceVariables::size) add({"SLURM_NTASKS", env.slurm_ntasks});
  return all;
}

}  // namespace ait::inline v0::internal

namespace ait::inline v0 {

std::string_view Name(LaunchedBy launched_by) {
  switch (launched_by) {
    case LaunchedBy::kNobody:
      return "nobody";
    case LaunchedBy::kArguments:
      return "arguments";
    case LaunchedBy::kHand:
      return "hand";
    case LaunchedBy::kAitRun:
      return "ait run";
    case LaunchedBy::kTorchrun:
      return "torchrun";
    case LaunchedBy::kOpenMpi:
      return "Open MPI";
    case LaunchedBy::kPmi:
      return "PMI (MPICH, Intel MPI, Cray)";
    case LaunchedBy::kPmix:
      return "PMIx";
    case LaunchedBy::kSlurm:
      return "Slurm";
    case LaunchedBy::kKubernetes:
      return "Kubernetes";
    case LaunchedBy::kKubeflow:
      return "Kubeflow";
  }
  return "unknown";
}

}  // namespace ait::inline v0

// SPDX-License-Identifier: Apache-2.0
// LaunchInfo: what the environment says about the run, with every conflict in one message.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ait/comm/world.h"
#include "comm/launch_choice.h"
#include "comm/launch_reader.h"
#include "comm/slurm_lists.h"
#include "comm/tcp_store_socket.h"

namespace ait::inline v0 {
namespace {

using internal::FirstOf;
using internal::kMaxInt;
using internal::LaunchChoice;
using internal::LaunchReader;
using internal::PlaceVariables;
using internal::Show;
using internal::Variable;

constexpr std::uint16_t kDefaultPort = 29400;  // where every pod has ports of its own
constexpr int kDerivedPorts = 8;

std::uint64_t Hash(std::string_view text) {  // FNV-1a
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

class LaunchBuilder {
 public:
  LaunchBuilder(const Env& env, LaunchReader& reader) : env_(env), reader_(reader) {}

  LaunchInfo Build() {
    const LaunchChoice choice = internal::ChooseLauncher(env_, reader_);
    info_.launched_by = choice.launched_by;
    info_.interface_name = env_.gloo_socket_ifname.value_or("");
    std::string overruled = choice.overruled;
    if (info_.launched_by == LaunchedBy::kNobody && !env_.ait_launcher && !env_.slurm_step_id &&
        env_.slurm_ntasks && *env_.slurm_ntasks != "1") {
      overruled = StrCat("SLURM_NTASKS=", *env_.slurm_ntasks,
                         ": without SLURM_STEP_ID this is no task of a step; start it by srun");
    }
    Decide("launched by", std::string(Name(info_.launched_by)), choice.because, overruled);
    if (info_.launched_by == LaunchedBy::kNobody) {
      Decide("rank", "0 of 1", "one process alone");
      return info_;
    }
    ReadPlace();
    switch (info_.launched_by) {
      case LaunchedBy::kTorchrun:
        ReadTorchrun();
        break;
      case LaunchedBy::kAitRun:
        ReadAitRun();
        break;
      case LaunchedBy::kSlurm:
        ReadSlurm();
        break;
      case LaunchedBy::kOpenMpi:
      case LaunchedBy::kPmix:
        job_ = StrCat(env_.ompi_job_key.value_or(""), env_.pmix_namespace.value_or(""));
        break;
      case LaunchedBy::kKubeflow:
        ReadKubeflow();
        break;
      default:
        break;
    }
    if (info_.launched_by != LaunchedBy::kTorchrun && env_.torchelastic_use_agent_store == "True" &&
        !env_.torchelastic_run_id) {
      reader_.Problem(
          "TORCHELASTIC_USE_AGENT_STORE is True, but TORCHELASTIC_RUN_ID is not set: left over "
          "from another job? unset it");
    }
    ReadMaster();
    NameRun();
    return info_;
  }

 private:
  bool IsByHand() const {
    return info_.launched_by == LaunchedBy::kHand || info_.launched_by == LaunchedBy::kAitRun ||
           info_.launched_by == LaunchedBy::kTorchrun;
  }
  bool IsPerPod() const {
    return info_.launched_by == LaunchedBy::kKubeflow ||
           info_.launched_by == LaunchedBy::kKubernetes;
  }

  void Decide(std::string what, std::string value, std::string source, std::string overruled = "") {
    info_.decisions.push_back(
        {std::move(what), std::move(value), std::move(source), std::move(overruled)});
  }

  /// Variables of other launchers that say something else.
  std::string Others(std::initializer_list<Variable PlaceVariables::*> quantities,
                     const PlaceVariables& own) const {
    std::vector<Variable> others;
    for (const auto quantity : quantities) {
      for (const Variable& variable : internal::AllOf(quantity, env_)) {
        if (own.*quantity && variable.text() != (own.*quantity).text()) others.push_back(variable);
      }
    }
    return Show(others);
  }

  void CheckUnset(const PlaceVariables& place) {
    std::string unset;
    const auto require = [&](const Variable& variable) {
      if (!variable) unset += StrCat(unset.empty() ? "" : ", ", variable.name());
    };
    require(place.rank);
    require(place.size);
    if (IsByHand()) {
      require({"MASTER_ADDR", env_.master_addr});
      require({"MASTER_PORT", env_.master_port});
    }
    if (unset.empty()) return;
    if (IsByHand()) {
      reader_.Problem(unset, " not set: set all of RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, ",
                      "or none of them for one process alone");
    } else if (info_.launched_by == LaunchedBy::kKubernetes) {
      reader_.Problem(unset, " not set: an Indexed Job does not tell its size; set WORLD_SIZE to ",
                      "the completions in the pod's template, or AIT_LAUNCHER=alone for pods that ",
                      "have nothing to do with each other");
    } else {
      reader_.Problem(unset, " not set, but ", info_.decisions.front().source, " says that ",
                      Name(info_.launched_by), " started this process; set it, or AIT_LAUNCHER=",
                      "alone for one process alone");
    }
  }

  void ReadPlace() {
    const PlaceVariables place = internal::PlaceOf(info_.launched_by, env_);
    CheckUnset(place);
    const auto rank = reader_.Number(place.rank, 0, kMaxInt);
    size_ = reader_.Number(place.size, 1, kMaxInt);
    const auto local_rank = reader_.Number(place.local_rank, 0, kMaxInt);
    const auto local_size = reader_.Number(place.local_size, 1, kMaxInt);
    if (rank && size_ && *rank >= *size_) {
      reader_.Problem(place.rank.name(), " ", *rank, " is not below ", place.size.name(), " ",
                      *size_);
    }
    info_.rank = Rank(rank.value_or(0));
    info_.size = WorldSize(size_.value_or(1));
    info_.local_is_given = IsPerPod() || (local_rank && local_size);
    info_.local_size = WorldSize(IsPerPod() ? 1 : local_size.value_or(info_.size.value()));
    info_.local_rank = Rank(IsPerPod() ? 0 : local_rank.value_or(info_.rank.value()));
    Decide("rank", StrCat(info_.rank, " of ", info_.size),
           StrCat(place.rank.name(), ", ", place.size.name()),
           Others({&PlaceVariables::rank, &PlaceVariables::size}, place));
    if (!size_) return;
    if (info_.local_size.value() > *size_) {
      reader_.Problem(place.local_size.name(), " ", info_.local_size, " is above ",
                      place.size.name(), " ", info_.size);
    } else if (info_.local_size.value() < *size_ && place.local_size && !place.local_rank) {
      reader_.Problem(place.local_rank.name(), " is not set, but ", place.local_size.name(), " ",
                      info_.local_size, " says that ranks are on other hosts");
    }
    if (local_rank && info_.launched_by != LaunchedBy::kSlurm &&
        *local_rank >= info_.local_size.value()) {
      reader_.Problem(place.local_rank.name(), " ", *local_rank, " is not below ",
                      place.local_size ? place.local_size.name() : "LOCAL_WORLD_SIZE", " ",
                      info_.local_size);
    }
    if (info_.local_is_given && !IsPerPod()) {
      Decide("local rank", StrCat(info_.local_rank, " of ", info_.local_size),
             StrCat(place.local_rank.name(), ", ", place.local_size.name()),
             Others({&PlaceVariables::local_rank, &PlaceVariables::local_size}, place));
    } else if (IsPerPod()) {
      Decide("local rank", "0 of 1", "one process a pod");
    }
  }

  void ReadTorchrun() {
    info_.restart_count =
        reader_.Number({"TORCHELASTIC_RESTART_COUNT", env_.torchelastic_restart_count}, 0, kMaxInt)
            .value_or(0);
    const std::string agent = env_.torchelastic_use_agent_store.value_or("False");
    if (agent != "True" && agent != "False") {
      reader_.Problem("TORCHELASTIC_USE_AGENT_STORE is neither True nor False");
    }
    info_.agent_store = agent == "True";
    info_.run_id = env_.torchelastic_run_id.value_or("");
  }

  void ReadAitRun() {
    if (!env_.ait_run_id) {
      reader_.Problem("AIT_RUN_ID is not set, but other variables of `ait run` are");
    }
    info_.run_id = env_.ait_run_id.value_or("");
    if (const auto fd = reader_.Number({"AIT_LISTEN_FD", env_.ait_listen_fd}, 0, kMaxInt)) {
      info_.listen_fd = *fd;
      if (info_.rank != Rank(0)) {
        reader_.Problem("AIT_LISTEN_FD is set, but only rank 0 serves and this is rank ",
                        info_.rank);
      }
    }
    // Its value is checked by World: here only that it is a number.
    reader_.Number({"AIT_PARENT_PID", env_.ait_parent_pid}, 1, kMaxInt);
  }

  void ReadSlurm() {
    info_.restart_count =
        reader_.Number({"SLURM_RESTART_COUNT", env_.slurm_restart_count}, 0, kMaxInt).value_or(0);
    job_ = StrCat(env_.slurm_job_id.value_or("?"), ".", env_.slurm_step_id.value_or("?"));
    if (info_.restart_count > 0) job_ += StrCat(".r", info_.restart_count);
    const auto node = reader_.Number({"SLURM_NODEID", env_.slurm_nodeid}, 0, kMaxInt);
    nodes_ = reader_.Number({"SLURM_STEP_NUM_NODES", env_.slurm_step_num_nodes}, 1, kMaxInt);
    if (env_.slurm_step_tasks_per_node) {
      const auto tasks = internal::ParseTasksPerNode(*env_.slurm_step_tasks_per_node);
      if (tasks.ok()) {
        CheckTasks(*tasks, node);
      } else {
        reader_.Problem("SLURM_STEP_TASKS_PER_NODE: ", Message(tasks.status()));
      }
    }
    if (env_.slurm_step_nodelist) {
      const auto nodes = internal::ParseNodeList(*env_.slurm_step_nodelist);
      if (!nodes.ok()) {
        reader_.Problem("SLURM_STEP_NODELIST: ", Message(nodes.status()));
      } else if (nodes_ && nodes->size() != static_cast<std::size_t>(*nodes_)) {
        reader_.Problem("SLURM_STEP_NODELIST ", *env_.slurm_step_nodelist, " has ", nodes->size(),
                        " nodes, but SLURM_STEP_NUM_NODES is ", *nodes_);
      } else {
        first_node_ = nodes->front();
        nodes_ = static_cast<int>(nodes->size());
      }
    }
    if (info_.local_is_given) {
      Decide("local rank", StrCat(info_.local_rank, " of ", info_.local_size),
             "SLURM_LOCALID, SLURM_STEP_TASKS_PER_NODE at SLURM_NODEID");
    }
  }

  void CheckTasks(const std::vector<int>& tasks, std::optional<int> node) {
    std::int64_t sum = 0;
    for (const int count : tasks) sum += count;
    if (size_ && sum != *size_) {
      reader_.Problem("SLURM_STEP_TASKS_PER_NODE ", *env_.slurm_step_tasks_per_node, " makes ", sum,
                      " tasks, but the step has ", *size_);
    }
    if (node && static_cast<std::size_t>(*node) >= tasks.size()) {
      reader_.Problem("SLURM_NODEID ", *node, " is not below the ", tasks.size(), " nodes of ",
                      "SLURM_STEP_TASKS_PER_NODE ", *env_.slurm_step_tasks_per_node);
    } else if (node && env_.slurm_localid) {
      info_.local_size = WorldSize(tasks[static_cast<std::size_t>(*node)]);
      info_.local_is_given = true;
      if (info_.local_rank.value() >= info_.local_size.value()) {
        reader_.Problem("SLURM_LOCALID ", info_.local_rank, " is not below the ", info_.local_size,
                        " tasks of node ", *node);
      }
    }
  }

  void ReadKubeflow() {
    const std::string processes = env_.pet_nproc_per_node.value_or("1");
    for (const char* one : {"1", "auto", "cpu", "gpu"}) {
      if (processes == one) return;
    }
    reader_.Problem("PET_NPROC_PER_NODE ", processes,
                    " asks for so many processes in each pod, but this ",
                    "program was started directly, as one; start it by `ait run -n ", processes,
                    " --nodes $PET_NNODES --node-rank $PET_NODE_RANK --rendezvous "
                    "$PET_MASTER_ADDR:$PET_MASTER_PORT -- PROGRAM`");
  }

  void ReadMaster() {
    const Variable address =
        info_.launched_by == LaunchedBy::kKubeflow
            ? FirstOf({"MASTER_ADDR", env_.master_addr}, {"PET_MASTER_ADDR", env_.pet_master_addr})
            : Variable("MASTER_ADDR", env_.master_addr);
    const Variable port =
        info_.launched_by == LaunchedBy::kKubeflow
            ? FirstOf({"MASTER_PORT", env_.master_port}, {"PET_MASTER_PORT", env_.pet_master_port})
            : Variable("MASTER_PORT", env_.master_port);
    const auto number = reader_.Number(port, 1, 65535);
    info_.master_port = static_cast<std::uint16_t>(number.value_or(0));
    if (info_.size == WorldSize(1) && !IsByHand()) return;  // nobody to meet
    std::string source = address ? address.name() : "";
    if (address) {
      info_.master_address = address.text();
    } else if (!IsByHand() && IsOneHost()) {
      source = ReadOneHost(port);
    } else if (!first_node_.empty()) {
      info_.master_address = first_node_;
      source = "first of SLURM_STEP_NODELIST";
    } else if (!IsByHand()) {
      reader_.Problem(HowToSetMaster());
      return;
    }
    if (port) {
      source += StrCat(", ", port.name());
    } else if (!info_.master_address.empty() && !info_.master_address.starts_with("unix:")) {
      source += ReadNoPort();
    }
    if (info_.launched_by != LaunchedBy::kAitRun) CheckLoopback(address);
    Decide("master", internal::ShowEndpoint(info_.master_address, info_.master_port), source,
           info_.launched_by == LaunchedBy::kKubeflow || !env_.pet_master_addr
               ? ""
               : StrCat("PET_MASTER_ADDR=", *env_.pet_master_addr));
  }

  bool IsOneHost() const {
    if (info_.launched_by == LaunchedBy::kSlurm) return nodes_ == 1;
    return info_.local_is_given && info_.local_size == info_.size && !IsPerPod();
  }

  /// All ranks are children of one launcher on one host: a socket that the job's name names.
  std::string ReadOneHost(const Variable& port) {
    if (port) {
      info_.master_address = "127.0.0.1";
      return "one host";
    }
    if (info_.launched_by == LaunchedBy::kPmi) {
      if (!env_.pmi_fd) {
        reader_.Problem(HowToSetMaster());
        return "";
      }
      reader_.Number({"PMI_FD", env_.pmi_fd}, 0, kMaxInt);
      info_.master_address = "unix:";  // World names it by the process at the end of PMI_FD
      return "one host; the process behind PMI_FD";
    }
    if (job_.empty()) {
      reader_.Problem(HowToSetMaster());
      return "";
    }
    info_.master_address = StrCat("unix:", JobName());
    return StrCat("one host; ", JobSource());
  }

  std::string ReadNoPort() {
    if (IsByHand()) return "";  // told already
    if (IsPerPod()) {
      info_.master_port = kDefaultPort;
      return ", port by default";
    }
    if (job_.empty()) {
      reader_.Problem("MASTER_PORT not set: ", HowToSetMaster());
      return "";
    }
    // Below the ports that Linux gives out by itself (32768 up), so that only another job collides.
    const std::uint64_t hash = Hash(JobName());
    for (int i = 0; i < kDerivedPorts; ++i) {
      const auto candidate = static_cast<std::uint16_t>(10'000 + (hash + 2'477 * i) % 20'000);
      if (i == 0) {
        info_.master_port = candidate;
      } else {
        info_.other_ports.push_back(candidate);
      }
    }
    return StrCat(", port by ", JobSource());
  }

  std::string HowToSetMaster() const {
    switch (info_.launched_by) {
      case LaunchedBy::kOpenMpi:
        return "mpirun does not tell where rank 0 is; pass -x MASTER_ADDR=HOST -x MASTER_PORT=PORT "
               "with the host of rank 0 and a port that is free there";
      case LaunchedBy::kPmi:
      case LaunchedBy::kPmix:
        return "the launcher does not tell where rank 0 is; pass -genv MASTER_ADDR HOST -genv "
               "MASTER_PORT PORT, or the like, with the host of rank 0 and a port that is free "
               "there";
      case LaunchedBy::kSlurm:
        return "SLURM_STEP_NODELIST is not set; set MASTER_ADDR to the host of task 0";
      default:
        return "MASTER_ADDR not set: set it to the name of the pod of rank 0, such as "
               "JOBSET-JOB-0-0.JOBSET";
    }
  }

  void CheckLoopback(const Variable& address) {
    if (!size_ || info_.local_size.value() >= *size_ || !address) return;
    if (!internal::SaysLoopback(info_.master_address)) return;
    const int others = *size_ - info_.local_size.value();
    reader_.Problem(
        address.name(), " ", info_.master_address, " is the loopback interface, which the ",
        others == 1 ? std::string("rank of another host") : StrCat(others, " ranks of other hosts"),
        " cannot reach; use an address of rank 0's host");
  }

  std::string JobName() const {
    std::string name = StrCat("ait-", JobSource(), "-", job_);
    std::replace(name.begin(), name.end(), ' ', '-');
    if (name.size() <= 90) return name;
    return StrCat("ait-", JobSource(), "-", Hash(job_));
  }

  std::string JobSource() const {
    switch (info_.launched_by) {
      case LaunchedBy::kSlurm:
        return "job and step";
      case LaunchedBy::kOpenMpi:
        return "key of the mpirun";
      default:
        return "PMIX_NAMESPACE";
    }
  }

  void NameRun() {
    std::string source = info_.launched_by == LaunchedBy::kAitRun     ? "AIT_RUN_ID"
                         : info_.launched_by == LaunchedBy::kTorchrun ? "TORCHELASTIC_RUN_ID"
                                                                      : "";
    if (!job_.empty()) {
      info_.run_id = JobName();
      source = JobSource();
    }
    if (env_.ait_attempt) {
      info_.run_id += StrCat("#", *env_.ait_attempt);
      source += StrCat(source.empty() ? "" : ", ", "AIT_ATTEMPT");
    }
    if (info_.run_id.size() > 255) {
      reader_.Problem("the run id has ", info_.run_id.size(), " bytes; allowed are 255");
    }
    if (!info_.run_id.empty()) Decide("run id", info_.run_id, source);
  }

  const Env& env_;
  LaunchReader& reader_;
  LaunchInfo info_;
  std::optional<int> size_, nodes_;
  std::string first_node_;
  std::string job_;  // what names the job on all of its hosts
};

}  // namespace

StatusOr<LaunchInfo> LaunchInfo::FromEnv(const Env& env) {
  LaunchReader reader;
  LaunchInfo info = LaunchBuilder(env, reader).Build();
  AIT_RETURN_IF_ERROR(reader.Result(env));
  return info;
}

}  // namespace ait::inline v0

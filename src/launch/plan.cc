// SPDX-License-Identifier: Apache-2.0
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <map>

#include "comm/tcp_store_socket.h"
#include "launch/plan_internal.h"
#include "launch/spawn_internal.h"

namespace ait::inline v0::internal {
namespace {

enum class Found { kNo, kNotExecutable, kYes };

Found Look(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return errno == EACCES ? Found::kNotExecutable : Found::kNo;
  if (!S_ISREG(info.st_mode)) return Found::kNotExecutable;
  return access(path.c_str(), X_OK) == 0 ? Found::kYes : Found::kNotExecutable;
}

/// One place of all CPUs that compute: with one for each thread, all that the main thread starts
/// later would share its CPU.
std::string PlaceOf(const RankLayout& layout) {
  std::string place;
  for (const int cpu : layout.compute) place += StrCat(place.empty() ? "{" : ",", cpu);
  return place + "}";
}

/// Takes out what PlaceThreads of another launch has set, in which this one runs.
void ForgetPlaces(std::map<std::string, std::string>& variables) {
  const char* const text = std::getenv("AIT_LAYOUT");
  const auto places = variables.find("OMP_PLACES");
  if (text == nullptr || places == variables.end()) return;
  const StatusOr<RankLayout> layout = ParseRankLayout(text);
  if (!layout.ok() || places->second != PlaceOf(*layout)) return;
  variables.erase(places);
  variables.erase("OMP_PROC_BIND");
}

/// Keeps OpenMP's threads on the CPUs that compute, if the layout has others and nobody has said
/// otherwise.
void PlaceThreads(const RankLayout& layout, std::map<std::string, std::string>& variables) {
  if (layout.compute == layout.cpus) return;
  for (const char* name : {"OMP_PLACES", "OMP_PROC_BIND", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"}) {
    if (variables.contains(name)) return;
  }
  variables["OMP_PLACES"] = PlaceOf(layout);
  variables["OMP_PROC_BIND"] = "true";
}

bool BelongsToAnotherLaunch(std::string_view name) {
  // torchrun's own; a child that inherits TORCHELASTIC_USE_AGENT_STORE waits for an agent for ever.
  constexpr std::string_view kPrefixes[] = {"TORCHELASTIC_", "GROUP_RANK", "GROUP_WORLD_SIZE",
                                            "ROLE_RANK",     "ROLE_NAME",  "ROLE_WORLD_SIZE",
                                            "AIT_LISTEN_FD", "AIT_LAYOUT"};
  return std::any_of(std::begin(kPrefixes), std::end(kPrefixes),
                     [name](std::string_view prefix) { return name.starts_with(prefix); });
}

}  // namespace

Status Check(const LaunchOptions& options) {
  const int world_size = options.world_size.value();
  if (options.command.empty() || options.command.front().empty()) {
    return InvalidArgumentError("no program to launch; name one");
  }
  if (world_size < 1 || world_size > kMaxLaunchRanks) {
    return InvalidArgumentError("cannot launch ", world_size, " ranks; 1 to ", kMaxLaunchRanks,
                                " are possible");
  }
  if (options.threads < 0) {
    return InvalidArgumentError("threads per rank must be at least 1, or 0 to choose, not ",
                                options.threads);
  }
  if (options.timeout <= Duration::zero() || options.grace < Duration::zero()) {
    return InvalidArgumentError("the time-out must be positive and the grace not negative");
  }
  const LaunchHosts& hosts = options.hosts;
  if (hosts.count < 1 || hosts.index < 0 || hosts.index >= hosts.count) {
    return InvalidArgumentError("host ", hosts.index, " of ", hosts.count,
                                " does not exist; hosts are 0 to their number - 1");
  }
  if (hosts.count > 1 && (hosts.address.empty() || hosts.port == 0)) {
    return InvalidArgumentError("several hosts need the address and a port of host 0, where their ",
                                "launchers meet");
  }
  if (hosts.join_timeout <= Duration::zero()) {
    return InvalidArgumentError("the time for the launchers to meet must be positive");
  }
  if (options.terminal != RankTerminal::kNone && options.output == nullptr) {
    return InvalidArgumentError("a terminal for rank 0 needs an output to copy from it to");
  }
  return OkStatus();
}

StatusOr<std::string> FindProgram(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    switch (Look(name)) {
      case Found::kYes:
        return name;
      case Found::kNotExecutable:
        return PermissionDeniedError("program ", name, " is not an executable file");
      case Found::kNo:
        return NotFoundError("program ", name, " does not exist");
    }
  }
  const char* variable = std::getenv("PATH");
  std::string_view path = variable == nullptr ? "/usr/local/bin:/usr/bin:/bin" : variable;
  std::string not_executable;
  while (true) {
    const std::size_t colon = path.find(':');
    const std::string_view folder = path.substr(0, colon);
    std::string candidate = StrCat(folder.empty() ? "." : folder, "/", name);
    const Found found = Look(candidate);
    if (found == Found::kYes) return candidate;
    if (found == Found::kNotExecutable && not_executable.empty()) not_executable = candidate;
    if (colon == std::string_view::npos) break;
    path.remove_prefix(colon + 1);
  }
  if (!not_executable.empty()) {
    return PermissionDeniedError("program ", not_executable, " is not an executable file");
  }
  const bool is_here = Look(StrCat("./", name)) == Found::kYes;
  return NotFoundError("program ", name, " is not in PATH",
                       is_here ? StrCat("; it is in this folder: write ./", name) : std::string());
}

StatusOr<Listener> ListenAt(const std::string& address) {
  AIT_ASSIGN_OR_RETURN(SocketFd socket, Listen(address, 0));
  AIT_ASSIGN_OR_RETURN(const std::uint16_t port, LocalPort(socket.get()));
  AIT_ASSIGN_OR_RETURN(FileDescriptor adopted, Adopt(socket.Release(), "a socket"));
  return Listener{std::move(adopted), port};
}

std::vector<std::string> MakeEnvironment(const LaunchOptions& options, const LaunchPlan& plan,
                                         int local_rank) {
  std::map<std::string, std::string> variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const std::size_t equals = text.find('=');
    if (equals == std::string_view::npos) continue;
    const std::string_view name = text.substr(0, equals);
    if (!BelongsToAnotherLaunch(name)) variables.emplace(name, text.substr(equals + 1));
  }
  ForgetPlaces(variables);
  for (const auto& [name, value] : options.environment) variables[name] = value;

  const RankPlan& mine = plan.ranks[static_cast<std::size_t>(local_rank)];
  const int rank = plan.first_rank + local_rank;
  variables["RANK"] = std::to_string(rank);
  variables["LOCAL_RANK"] = std::to_string(local_rank);
  variables["WORLD_SIZE"] = std::to_string(plan.world_size);
  variables["LOCAL_WORLD_SIZE"] = StrCat(options.world_size);
  variables["MASTER_ADDR"] = plan.master;
  variables["MASTER_PORT"] = std::to_string(plan.port);
  variables["AIT_RUN_ID"] = plan.run_id;
  variables["AIT_PARENT_PID"] = std::to_string(getpid());
  variables["OMP_NUM_THREADS"] = std::to_string(mine.threads);
  if (mine.layout) {
    variables["AIT_LAYOUT"] = ToText(*mine.layout);
    PlaceThreads(*mine.layout, variables);
  }
  if (rank == 0 && options.port == RankPort::kInherited)
    variables["AIT_LISTEN_FD"] = std::to_string(kListenFd);

  std::vector<std::string> result;
  result.reserve(variables.size());
  for (const auto& [name, value] : variables) result.push_back(StrCat(name, "=", value));
  return result;
}

}  // namespace ait::inline v0::internal

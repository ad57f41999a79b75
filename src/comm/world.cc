// SPDX-License-Identifier: Apache-2.0
#include "ait/comm/world.h"

#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <string>
#include <utility>
#include <vector>

#include "ait/comm/tcp_store.h"
#include "ait/comm/thread_group.h"
#include "ait/comm/transport.h"
#include "comm/hang_watch.h"
#include "comm/tcp_store_socket.h"
#include "comm/world_agent.h"
#include "comm/world_hosts.h"

namespace ait::inline v0 {

class World::Impl {
 public:
  LaunchInfo launch;
  Env env;
  std::string transport;
  std::vector<WorldHost> hosts;
  int threads = 1;
  std::string threads_source;
  LogDecisions log_decisions = LogDecisions::kNo;
  std::shared_ptr<TcpStore> store;
  std::unique_ptr<internal::HangWatch> hang_watch;
  std::shared_ptr<Communicator> communicator;  // gone before the store
};

namespace {

// A rank that outlived its launcher would wait for peers that nobody restarts.
Status CheckLauncher(const Env& env) {
  if (!env.ait_parent_pid) return OkStatus();
  pid_t launcher = 0;
  const std::string& text = *env.ait_parent_pid;
  std::from_chars(text.data(), text.data() + text.size(), launcher);
  if (kill(launcher, 0) == 0 || errno != ESRCH) return OkStatus();
  return FailedPreconditionError("`ait run` (pid ", launcher,
                                 ", AIT_PARENT_PID) has ended, so this rank does not start");
}

// What FromEnv checks of the environment, of a LaunchInfo that the program made.
Status CheckArguments(const LaunchInfo& launch) {
  const auto wrong = [](const auto&... parts) {
    return InvalidArgumentError("WorldOptions::launch: ", parts...);
  };
  if (launch.size < WorldSize(1) || launch.rank < Rank(0) ||
      launch.rank.value() >= launch.size.value()) {
    return wrong("rank ", launch.rank, " of ", launch.size, " does not exist");
  }
  if (launch.local_is_given &&
      (launch.local_rank < Rank(0) || launch.local_rank.value() >= launch.local_size.value() ||
       launch.local_size.value() > launch.size.value())) {
    return wrong("local rank ", launch.local_rank, " of ", launch.local_size,
                 " does not exist in a world of ", launch.size);
  }
  if (launch.size == WorldSize(1) || launch.listen_fd >= 0) return OkStatus();
  if (launch.master_address.empty()) return wrong("master_address is empty");
  if (launch.master_port == 0 && !internal::SaysUnix(launch.master_address)) {
    return wrong("master_port is 0");
  }
  return OkStatus();
}

// Ranks of MPICH's launcher hold a socket whose other end is the launcher's process of this host.
Status NameByLauncher(const Env& env, LaunchInfo& launch) {
  int fd = -1;
  const std::string& text = *env.pmi_fd;
  std::from_chars(text.data(), text.data() + text.size(), fd);
  ucred launcher{};
  socklen_t length = sizeof(launcher);
  if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &launcher, &length) != 0 || launcher.pid <= 0) {
    return FailedPreconditionError("PMI_FD ", fd,
                                   " is no socket to the launcher; set MASTER_ADDR "
                                   "and MASTER_PORT for all ranks");
  }
  launch.master_address = StrCat("unix:ait-pmi-", launcher.pid);
  launch.run_id = StrCat("pmi-", launcher.pid, launch.run_id);
  for (LaunchDecision& decision : launch.decisions) {
    if (decision.what == "master") decision.value = launch.master_address;
  }
  return OkStatus();
}

StatusOr<std::unique_ptr<TcpStore>> JoinStore(const WorldOptions& options, LaunchInfo& launch) {
  if (launch.agent_store) {
    AIT_ASSIGN_OR_RETURN(
        const std::unique_ptr<Store> agent,
        options.transport->JoinAgentStore(launch, Deadline::After(options.join_timeout)));
    return internal::JoinThroughAgent(*agent, launch, options.join_timeout, options.log);
  }
  return TcpStore::Create({.rank = launch.rank,
                           .size = launch.size,
                           .host = launch.master_address,
                           .port = launch.master_port,
                           .other_ports = launch.other_ports,
                           .listen_fd = launch.listen_fd,
                           .run_id = launch.run_id,
                           .timeout = options.join_timeout,
                           .log = options.log});
}

// A rank that meets rank 0 by loopback while others come from elsewhere has no address that those
// reach. Every rank looks at all of them, so that all come to the same end.
Status CheckAddresses(const LaunchInfo& launch, const std::vector<WorldHost>& hosts,
                      const std::vector<internal::RankPlace>& places) {
  if (hosts.size() < 2 || !launch.interface_name.empty()) return OkStatus();
  const auto by_loopback = [](const internal::RankPlace& place) {
    return internal::IsLoopbackAddress(place.address);
  };
  const auto wrong = std::find_if(places.begin(), places.end(), by_loopback);
  if (wrong == places.end() || std::all_of(places.begin(), places.end(), by_loopback)) {
    return OkStatus();
  }
  return FailedPreconditionError(
      "rank ", wrong - places.begin(), " on host ", wrong->name,
      " reaches rank 0 through the loopback interface (", wrong->address, "), but the run has ",
      hosts.size(), " hosts; set MASTER_ADDR to an address of rank 0's host that all reach, or ",
      "GLOO_SOCKET_IFNAME to the interface that leads to the others");
}

// Finds out where all ranks are; what the launcher did not tell of this host follows from it.
Status MeetHosts(const WorldOptions& options, TcpStore& store, LaunchInfo& launch,
                 std::vector<WorldHost>& hosts, int& threads) {
  AIT_ASSIGN_OR_RETURN(
      const std::vector<internal::RankPlace> places,
      internal::ExchangePlaces(store, launch, internal::OwnPlace(store.local_address()),
                               Deadline::After(options.join_timeout)));
  hosts = internal::HostsOf(places);
  threads = internal::ThreadsOf(places, launch.rank);
  launch.host_count = static_cast<int>(hosts.size());
  if (!launch.local_is_given) {
    for (const WorldHost& host : hosts) {
      const auto own = std::find(host.ranks.begin(), host.ranks.end(), launch.rank);
      if (own == host.ranks.end()) continue;
      launch.local_rank = Rank(static_cast<int>(own - host.ranks.begin()));
      launch.local_size = WorldSize(static_cast<int>(host.ranks.size()));
      launch.decisions.push_back({"local rank",
                                  StrCat(launch.local_rank, " of ", launch.local_size),
                                  "the ranks of this host, as they found each other", ""});
    }
  }
  return CheckAddresses(launch, hosts, places);
}

// OMP_NUM_THREADS, of a list for nested regions the first; 0 if it is not set.
StatusOr<int> ThreadsAsked(const Env& env) {
  if (!env.omp_num_threads) return 0;
  int threads = 0;
  const std::string& text = *env.omp_num_threads;
  const std::size_t begin = std::min(text.find_first_not_of(' '), text.size());
  std::from_chars(text.data() + begin, text.data() + text.size(), threads);
  if (threads >= 1) return threads;
  return InvalidArgumentError("OMP_NUM_THREADS is \"", text,
                              "\"; a number of threads, at least 1, ",
                              "or a list of them (\"4,2\") is possible");
}

std::string Row(std::string_view name, std::string_view value, std::string_view source,
                std::string_view overruled = "") {
  std::string row(name);
  row.resize(std::max<std::size_t>(row.size() + 1, 13), ' ');
  row += value;
  if (!source.empty() || !overruled.empty()) {
    row.resize(std::max<std::size_t>(row.size() + 2, 48), ' ');
    row += source;
  }
  if (!overruled.empty()) row += StrCat(source.empty() ? "" : "; ", "overrules ", overruled);
  return row + "\n";
}

// "0-1, 4".
std::string Show(const std::vector<Rank>& ranks) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    std::size_t end = i + 1;
    while (end < ranks.size() && ranks[end].value() == ranks[end - 1].value() + 1) ++end;
    text += StrCat(text.empty() ? "" : ", ", ranks[i]);
    if (end - i > 1) text += StrCat("-", ranks[end - 1]);
    i = end;
  }
  return text;
}

// AIT_DESCRIBE, else what the program wants.
StatusOr<LogDecisions> DecisionsAsked(const Env& env, LogDecisions otherwise) {
  if (!env.ait_describe) return otherwise;
  if (*env.ait_describe == "0") return LogDecisions::kNo;
  if (*env.ait_describe == "1") return LogDecisions::kRankZero;
  if (*env.ait_describe == "all") return LogDecisions::kEveryRank;
  return InvalidArgumentError("AIT_DESCRIBE is \"", *env.ait_describe,
                              "\"; 0, 1 (rank 0) and all are possible");
}

bool Covers(LogDecisions decisions, Rank rank) {
  return decisions == LogDecisions::kEveryRank ||
         (decisions == LogDecisions::kRankZero && rank == Rank(0));
}

void LogLines(LogSink* log, const std::string& text) {
  std::string_view rest = text;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n');
    Log(log, Severity::kInfo, "comm", rest.substr(0, end));
    rest.remove_prefix(end + 1);
  }
}

}  // namespace

World::World(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

World::~World() {
  impl_->communicator.reset();
  impl_->hang_watch.reset();
  impl_->store.reset();
}

StatusOr<std::unique_ptr<World>> World::FromEnvironment(WorldOptions options) {
  auto impl = std::make_unique<Impl>();
  impl->env = options.env ? *options.env : Env::FromProcess();
  LaunchInfo& launch = impl->launch;
  if (options.launch) {
    launch = *std::move(options.launch);
    launch.launched_by = LaunchedBy::kArguments;
    AIT_RETURN_IF_ERROR(CheckArguments(launch));
    launch.decisions = {
        {"launched by", "arguments", "WorldOptions::launch", ""},
        {"rank", StrCat(launch.rank, " of ", launch.size), "", ""},
        {"master", internal::ShowEndpoint(launch.master_address, launch.master_port), "", ""}};
  } else {
    AIT_ASSIGN_OR_RETURN(launch, LaunchInfo::FromEnv(impl->env));
    AIT_RETURN_IF_ERROR(CheckLauncher(impl->env));
  }
  AIT_ASSIGN_OR_RETURN(impl->log_decisions, DecisionsAsked(impl->env, options.decisions));
  AIT_ASSIGN_OR_RETURN(const int threads, ThreadsAsked(impl->env));
  AIT_ASSIGN_OR_RETURN(options.communicator.recorder,
                       internal::WorldRecorder(std::move(options.communicator.recorder), impl->env,
                                               launch.rank, launch.size, options.log));
  if (launch.size == WorldSize(1)) {
    // Nobody will come. A descriptor that is no listener is somebody else's, and stays open.
    if (launch.listen_fd >= 0) internal::AdoptListener(launch.listen_fd).status().IgnoreError();
    const internal::RankPlace own = internal::OwnPlace("");
    impl->hosts = internal::HostsOf({own});
    impl->threads = internal::ThreadsOf({own}, Rank(0));
    impl->transport = "none";
    impl->communicator = MakeThreadGroup(WorldSize(1), options.communicator).front();
    if (const std::string& other = launch.decisions.front().overruled;
        launch.launched_by == LaunchedBy::kNobody && !other.empty()) {
      Log(options.log, Severity::kWarning, "comm", StrCat("one process alone, though ", other));
    }
  } else {
    if (options.transport == nullptr) {
      return InvalidArgumentError("WORLD_SIZE is ", launch.size,
                                  ", but WorldOptions has no transport between processes; give ",
                                  "one, such as Gloo() of ait/tensor/gloo.h");
    }
    if (!launch.interface_name.empty()) {
      AIT_RETURN_IF_ERROR(internal::CheckInterface(launch.interface_name));
    }
    if (launch.master_address == "unix:") {
      AIT_RETURN_IF_ERROR(NameByLauncher(impl->env, launch));
    }
    AIT_ASSIGN_OR_RETURN(impl->store, JoinStore(options, launch));
    AIT_RETURN_IF_ERROR(MeetHosts(options, *impl->store, launch, impl->hosts, impl->threads));
    AIT_ASSIGN_OR_RETURN(
        std::unique_ptr<Transport> transport,
        options.transport->Connect(launch, impl->store, Deadline::After(options.join_timeout)));
    if (options.communicator.hang_report_after.count() > 0) {
      AIT_ASSIGN_OR_RETURN(
          impl->hang_watch,
          internal::HangWatch::Create(impl->store, options.communicator.recorder,
                                      options.communicator.hang_report_after, options.log));
    }
    impl->transport = std::string(options.transport->name());
    if (transport->name() != options.transport->name()) {  // it has chosen
      impl->transport += StrCat(": ", transport->name());
    }
    impl->communicator = std::make_shared<Communicator>(std::move(transport), options.communicator);
  }
  impl->threads_source = "CPUs it may use / ranks of the host that may use them";
  if (threads > 0) {
    impl->threads_source = "OMP_NUM_THREADS";
    impl->threads = threads;
  }
  auto world = std::unique_ptr<World>(new World(std::move(impl)));
  if (Covers(world->impl_->log_decisions, world->rank())) LogLines(options.log, world->Describe());
  return world;
}

Rank World::rank() const { return impl_->launch.rank; }
WorldSize World::size() const { return impl_->launch.size; }
Rank World::local_rank() const { return impl_->launch.local_rank; }
WorldSize World::local_size() const { return impl_->launch.local_size; }
const LaunchInfo& World::launch() const { return impl_->launch; }
const std::shared_ptr<Communicator>& World::communicator() const { return impl_->communicator; }
Shard World::shard() const { return {.rank = rank(), .size = size()}; }
TcpStore* World::store() const { return impl_->store.get(); }

const std::vector<WorldHost>& World::hosts() const { return impl_->hosts; }
int World::threads() const { return impl_->threads; }
bool World::asked_to_describe() const {
  return impl_->env.ait_describe && Covers(impl_->log_decisions, rank());
}

std::string World::Describe() const {
  const LaunchInfo& launch = impl_->launch;
  std::string table;
  for (const LaunchDecision& decision : launch.decisions) {
    table += Row(decision.what, decision.value, decision.source, decision.overruled);
  }
  if (impl_->store == nullptr) {
    table += Row("network", "none", "a world of one needs none");
  } else {
    table += Row(
        "store",
        StrCat("of rank 0, ", internal::ShowEndpoint(launch.master_address, impl_->store->port())),
        launch.agent_store      ? "found through the store of torchrun's agent"
        : launch.listen_fd >= 0 ? "inherited (AIT_LISTEN_FD)"
                                : "");
    if (launch.agent_store) table += Row("attempt", launch.run_id, "made by rank 0");
    const std::string address = impl_->store->local_address();
    if (!launch.interface_name.empty()) {
      table += Row("interface", launch.interface_name, "GLOO_SOCKET_IFNAME",
                   StrCat(internal::InterfaceOf(address), " (", address, ")"));
    } else if (address.empty()) {
      table += Row("interface", "lo", "one host");
    } else {
      table += Row("interface", StrCat(internal::InterfaceOf(address), " (", address, ")"),
                   launch.host_count == 1 ? "by it this rank meets rank 0; all are on one host"
                                          : "by it this host and rank 0's reach each other");
    }
    table += Row("transport", impl_->transport, "WorldOptions::transport");
  }
  std::string_view source = "kernel and namespaces of each rank";
  for (const WorldHost& host : impl_->hosts) {
    table += Row(impl_->hosts.size() == 1 ? "host" : StrCat("host ", &host - impl_->hosts.data()),
                 StrCat(host.name, host.address.empty() ? "" : StrCat(" (", host.address, ")"),
                        host.ranks.size() == 1 ? " rank " : " ranks ", Show(host.ranks)),
                 std::exchange(source, ""));
  }
  table += Row("threads", StrCat(impl_->threads, " a rank"), impl_->threads_source);
  return table;
}

}  // namespace ait::inline v0

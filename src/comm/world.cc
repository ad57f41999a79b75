// SPDX-License-Identifier: Apache-2.0
#include "ait/comm/world.h"

#include <signal.h>
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

namespace ait::inline v0 {

class World::Impl {
 public:
  LaunchInfo launch;
  Env env;
  std::string transport;
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
                           .listen_fd = launch.listen_fd,
                           .run_id = launch.run_id,
                           .timeout = options.join_timeout,
                           .log = options.log});
}

std::string Row(std::string_view name, std::string_view value, std::string_view source) {
  std::string row(name);
  row.resize(std::max<std::size_t>(row.size() + 1, 13), ' ');
  row += value;
  if (!source.empty()) {
    row.resize(std::max<std::size_t>(row.size() + 2, 48), ' ');
    row += source;
  }
  return row + "\n";
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
  AIT_ASSIGN_OR_RETURN(impl->launch, LaunchInfo::FromEnv(impl->env));
  LaunchInfo& launch = impl->launch;
  AIT_RETURN_IF_ERROR(CheckLauncher(impl->env));
  AIT_ASSIGN_OR_RETURN(options.communicator.recorder,
                       internal::WorldRecorder(std::move(options.communicator.recorder), impl->env,
                                               launch.rank, launch.size, options.log));
  if (launch.size == WorldSize(1)) {
    // Nobody will come. A descriptor that is no listener is somebody else's, and stays open.
    if (launch.listen_fd >= 0) internal::AdoptListener(launch.listen_fd).status().IgnoreError();
    impl->transport = "none";
    impl->communicator = MakeThreadGroup(WorldSize(1), options.communicator).front();
    return std::unique_ptr<World>(new World(std::move(impl)));
  }
  if (options.transport == nullptr) {
    return InvalidArgumentError("WORLD_SIZE is ", launch.size,
                                ", but WorldOptions has no transport between processes; give one, "
                                "such as Gloo() of ait/tensor/gloo.h");
  }
  AIT_ASSIGN_OR_RETURN(impl->store, JoinStore(options, launch));
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
  impl->communicator = std::make_shared<Communicator>(std::move(transport), options.communicator);
  return std::unique_ptr<World>(new World(std::move(impl)));
}

Rank World::rank() const { return impl_->launch.rank; }
WorldSize World::size() const { return impl_->launch.size; }
Rank World::local_rank() const { return impl_->launch.local_rank; }
WorldSize World::local_size() const { return impl_->launch.local_size; }
const LaunchInfo& World::launch() const { return impl_->launch; }
const std::shared_ptr<Communicator>& World::communicator() const { return impl_->communicator; }
Shard World::shard() const { return {.rank = rank(), .size = size()}; }
TcpStore* World::store() const { return impl_->store.get(); }

std::string World::Describe() const {
  const LaunchInfo& launch = impl_->launch;
  const Env& env = impl_->env;
  const auto of = [](const Env::Value& value, std::string_view name, std::string_view otherwise) {
    return std::string(value ? name : otherwise);
  };
  std::string table = Row("launched by", Name(launch.launched_by), "");
  table += Row("rank", StrCat(rank(), " of ", size()),
               of(env.rank, "RANK, WORLD_SIZE", "one process alone"));
  table += Row("local rank", StrCat(local_rank(), " of ", local_size()),
               StrCat(of(env.local_rank, "LOCAL_RANK", "same as RANK"), ", ",
                      of(env.local_world_size, "LOCAL_WORLD_SIZE", "all on one host")));
  if (impl_->store == nullptr) return table + Row("network", "none", "a world of one needs none");
  table += Row("master", StrCat(launch.master_address, " port ", launch.master_port),
               "MASTER_ADDR, MASTER_PORT");
  table += Row("store", StrCat("of rank 0, port ", impl_->store->port()),
               launch.agent_store      ? "found through the store of torchrun's agent"
               : launch.listen_fd >= 0 ? "AIT_LISTEN_FD"
                                       : "");
  table += Row("run id", launch.run_id.empty() ? "none" : launch.run_id,
               launch.agent_store                            ? "made by rank 0"
               : launch.launched_by == LaunchedBy::kAitRun   ? "AIT_RUN_ID"
               : launch.launched_by == LaunchedBy::kTorchrun ? "TORCHELASTIC_RUN_ID"
                                                             : "");
  table += Row("this host", impl_->store->local_address(), "as the other ranks reach it");
  table += Row("transport", impl_->transport,
               of(env.gloo_socket_ifname, "GLOO_SOCKET_IFNAME", "interface by route"));
  return table;
}

}  // namespace ait::inline v0

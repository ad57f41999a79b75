// SPDX-License-Identifier: Apache-2.0
#include "ait/launch/launcher.h"

#include <unistd.h>

#include <utility>

#include "launch/host_group_internal.h"
#include "launch/plan_internal.h"
#include "launch/spawn_internal.h"
#include "launch/supervisor_internal.h"
#include "launch/terminal_internal.h"

namespace ait::inline v0 {

using internal::FileDescriptor;
using internal::Guard;
using internal::HostGroup;
using internal::MakePipe;
using internal::Pipe;
using internal::RankProcess;
using internal::SpawnRequest;
using internal::Supervisor;

struct Launcher::Impl {
  LaunchOptions options;
  LaunchPlan plan;
  FileDescriptor listener;
  FileDescriptor nothing;            // /dev/null
  Pipe wake;                         // signals for `Stop`, one byte each
  std::unique_ptr<HostGroup> hosts;  // null on one host; gone before `wake`
  bool started = false;

  StatusOr<RankProcess> Start(int local_rank, const Guard& guard);
};

StatusOr<Launcher> Launcher::Create(LaunchOptions options) {
  AIT_RETURN_IF_ERROR(internal::Check(options));
  auto impl = std::make_unique<Impl>();
  impl->options = std::move(options);
  LaunchPlan& plan = impl->plan;
  AIT_ASSIGN_OR_RETURN(plan.program, internal::FindProgram(impl->options.command.front()));
  plan.run_id = StrCat(getpid(), "-", std::chrono::system_clock::now().time_since_epoch().count());
  AIT_RETURN_IF_ERROR(internal::PlanRanks(impl->options, plan));
  const LaunchHosts& hosts = impl->options.hosts;
  plan.world_size = impl->options.world_size.value();
  plan.master = hosts.count > 1 ? hosts.address : "127.0.0.1";
  if (hosts.index == 0) {
    AIT_ASSIGN_OR_RETURN(internal::Listener listener, internal::ListenAt(plan.master));
    impl->listener = std::move(listener.socket);
    plan.port = listener.port;
  }
  AIT_ASSIGN_OR_RETURN(impl->nothing,
                       internal::Adopt(open("/dev/null", O_RDWR | O_CLOEXEC), "/dev/null"));
  AIT_ASSIGN_OR_RETURN(impl->wake, MakePipe());
  internal::SetNonBlocking(impl->wake.read);
  internal::SetNonBlocking(impl->wake.write);
  if (hosts.count > 1) {
    AIT_ASSIGN_OR_RETURN(impl->hosts, HostGroup::Join(hosts, plan.world_size));
    AIT_RETURN_IF_ERROR(impl->hosts->Share(plan.run_id, plan.port));
    plan.first_rank = impl->hosts->first_rank();
    plan.world_size = impl->hosts->world_size();
    impl->hosts->Wake(impl->wake.write);
  }
  return Launcher(std::move(impl));
}

Launcher::Launcher(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Launcher::Launcher(Launcher&&) noexcept = default;
Launcher& Launcher::operator=(Launcher&&) noexcept = default;
Launcher::~Launcher() = default;

const LaunchPlan& Launcher::plan() const { return impl_->plan; }

void Launcher::Stop(int signal) noexcept {
  const int error_number = errno;  // of what a signal handler may have interrupted
  const auto byte = static_cast<unsigned char>(signal);
  [[maybe_unused]] const ssize_t n = write(impl_->wake.write.get(), &byte, 1);
  errno = error_number;
}

StatusOr<RankProcess> Launcher::Impl::Start(int local_rank, const Guard& guard) {
  const int rank = plan.first_rank + local_rank;
  const RankPlan& mine = plan.ranks[static_cast<std::size_t>(local_rank)];
  SpawnRequest request = {
      .program = plan.program,
      .command = options.command,
      .environment = internal::MakeEnvironment(options, plan, local_rank),
      .input = rank == 0 && options.input == RankInput::kRankZero ? STDIN_FILENO : nothing.get(),
      .listener = rank == 0 ? listener.get() : -1,
      .cpus = mine.cpus,
      .memory_node = mine.memory_node.value_or(-1),
      .guard = guard.fd(),
  };
  RankProcess process;
  Pipe streams[2];
  if (options.output != nullptr) {
    for (int stream = 0; stream < 2; ++stream) {
      const bool is_terminal =
          rank == 0 && (options.terminal == RankTerminal::kOutputAndError ||
                        (options.terminal == RankTerminal::kError && stream == 1));
      AIT_ASSIGN_OR_RETURN(streams[stream], is_terminal ? internal::MakeTerminal() : MakePipe());
      process.streams[stream] = std::move(streams[stream].read);
    }
    request.output = streams[0].write.get();
    request.error = streams[1].write.get();
  }
  AIT_ASSIGN_OR_RETURN(process.pid, internal::Spawn(request));
  return process;
}

StatusOr<LaunchResult> Launcher::Run() {
  if (std::exchange(impl_->started, true)) {
    return FailedPreconditionError("a Launcher runs once; create another one");
  }
  // Before the guard is forked: it holds what is open then until it comes to close it.
  if (impl_->options.port == RankPort::kFree) impl_->listener.Close();
  AIT_ASSIGN_OR_RETURN(Guard guard, Guard::Start());
  Supervisor supervisor(impl_->options, impl_->plan, impl_->wake.read, guard, impl_->hosts.get());
  for (int rank = 0; rank < impl_->options.world_size.value(); ++rank) {
    auto process = impl_->Start(rank, guard);
    if (!process.ok()) {
      supervisor.Abandon();
      Status failed =
          Annotate(process.status(), StrCat("cannot start rank ", impl_->plan.first_rank + rank));
      if (impl_->hosts != nullptr) {
        impl_->hosts->Fail({.host = impl_->options.hosts.index,
                            .code = 125,
                            .rank = std::nullopt,
                            .text = Message(failed)});
      }
      return failed;
    }
    supervisor.Add(*std::move(process));
    // From now on the port is rank 0's alone: if it dies, others notice at once.
    if (rank == 0) impl_->listener.Close();
  }
  return supervisor.Watch();
}

}  // namespace ait::inline v0
